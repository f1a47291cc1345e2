/** Read-only documents whose text is made here: transcript, context, entry, preview, summary. */

import {
  commands,
  EventEmitter,
  Uri,
  ViewColumn,
  window,
  workspace,
  type Disposable,
  type TextDocumentContentProvider,
  type TextEditor,
} from 'vscode';

import { SCHEME } from './workbench';

type Maker = (query: URLSearchParams) => Promise<string> | string;

export class Documents implements TextDocumentContentProvider, Disposable {
  readonly #changed = new EventEmitter<Uri>();
  readonly #makers = new Map<string, Maker>();
  readonly onDidChange = this.#changed.event;
  /** VS Code looks for `onDidChange` now and not later, so this comes last. */
  readonly #registration = workspace.registerTextDocumentContentProvider(SCHEME, this);

  /** Documents of that kind get their text from `maker`, which gets what their address says. */
  provide(kind: string, maker: Maker): void {
    this.#makers.set(kind, maker);
  }

  provideTextDocumentContent(uri: Uri): Promise<string> | string {
    const kind = uri.path.split('/')[1] ?? '';
    return this.#makers.get(kind)?.(new URLSearchParams(uri.query)) ?? '';
  }

  /** A document's address; `title` is what its tab says, `suffix` tells its language. */
  address(kind: string, title: string, query: Record<string, string>, suffix = '.md'): Uri {
    const name =
      title
        .replace(/[/\\\s]+/g, ' ')
        .trim()
        .slice(0, 80) || kind;
    return Uri.from({
      scheme: SCHEME,
      path: `/${kind}/${name}${suffix}`,
      query: new URLSearchParams(query).toString(),
    });
  }

  /** Show a document as text. */
  async show(
    uri: Uri,
    options: { beside?: boolean; keepFocus?: boolean; preview?: boolean } = {},
  ): Promise<TextEditor> {
    const document = await workspace.openTextDocument(uri);
    return window.showTextDocument(document, {
      viewColumn: options.beside ? ViewColumn.Beside : ViewColumn.Active,
      preserveFocus: options.keepFocus ?? false,
      preview: options.preview ?? true,
    });
  }

  /** Show a document as it is meant to be read, with tables and headings. */
  async showRendered(uri: Uri): Promise<void> {
    await workspace.openTextDocument(uri);
    this.refresh(uri);
    await commands.executeCommand('markdown.showPreview', uri);
  }

  /** The text of that document has changed. */
  refresh(uri: Uri): void {
    this.#changed.fire(uri);
  }

  dispose(): void {
    this.#registration.dispose();
    this.#changed.dispose();
  }
}
