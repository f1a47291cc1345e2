/** The Python interpreter a person has selected, as the Python extension tells it. */

import { extensions, workspace, type Uri } from 'vscode';

const PYTHON_EXTENSION = 'ms-python.python';

interface PythonApi {
  environments: {
    getActiveEnvironmentPath(resource?: Uri): { path: string };
    resolveEnvironment(
      path: unknown,
    ): Promise<{ executable: { uri?: { fsPath: string } | undefined } } | undefined>;
  };
}

/**
 * The path of the selected interpreter; undefined without the Python extension, or where the workspace is not
 * trusted (a repository may bring an interpreter along).
 */
export async function selectedPython(resource: Uri | undefined): Promise<string | undefined> {
  const python = extensions.getExtension<PythonApi>(PYTHON_EXTENSION);
  if (!workspace.isTrusted || python === undefined) return undefined;
  try {
    const { environments } = await python.activate();
    const found = await environments.resolveEnvironment(environments.getActiveEnvironmentPath(resource));
    return found?.executable.uri?.fsPath;
  } catch {
    return undefined; // an extension that is broken is as good as none
  }
}
