/** Values of settings as they were written: people write what a schema does not allow. No editor in here. */

/** The value where it is of the fallback's kind (and one of `allowed`), else the fallback. */
export function fitting<T extends string | number | Record<string, unknown>>(
  value: unknown,
  fallback: T,
  allowed?: readonly T[],
): T {
  const isFitting =
    typeof value === typeof fallback && value !== null && !Array.isArray(value) && !Number.isNaN(value);
  if (!isFitting) return fallback;
  return allowed === undefined || allowed.includes(value as T) ? (value as T) : fallback;
}

/** A program and its arguments; a text alone is the program. What is neither is as good as not set. */
export function commandLine(value: unknown): string[] {
  if (typeof value === 'string') return value.trim() === '' ? [] : [value.trim()];
  return Array.isArray(value) && value.every((word) => typeof word === 'string') ? value : [];
}
