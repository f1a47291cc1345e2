/** The one way to a text a person reads: English in the code, other languages in l10n/. */

type Translate = (message: string, ...values: (string | number)[]) => string;

const inEnglish: Translate = (message, ...values) =>
  message.replace(/\{(\d+)\}/g, (whole, index: string) => String(values[Number(index)] ?? whole));

let translate: Translate = inEnglish;

/** Translate with `how` from now on; inside the editor that is `vscode.l10n.t`, in unit tests nothing. */
export function translateWith(how: Translate): void {
  translate = how;
}

/** The text in the editor's language, `{0}`, `{1}`, … replaced by the values. */
export function t(message: string, ...values: (string | number)[]): string {
  return translate(message, ...values);
}
