/** The server of this window: found, started, restarted, asked. One process serves all folders. */

import { homedir } from 'node:os';

import {
  CancellationToken,
  Disposable,
  EventEmitter,
  workspace,
  type LogOutputChannel,
  type Uri,
} from 'vscode';
import {
  ErrorCodes,
  ExecuteCommandRequest,
  ResponseError,
  State,
  WorkDoneProgress,
  type WorkDoneProgressBegin,
  type WorkDoneProgressReport,
} from 'vscode-languageclient/node';

import * as configuration from '../configuration';
import {
  CONFIGURATION_SECTION,
  NOTIFICATIONS,
  type Address,
  type Arguments,
  type Command,
  type Push,
  type Result,
} from '../protocol';
import { makeClient, type Client } from './client';
import { findServer, type Program } from './discovery';
import { selectedPython } from './python';

/** What the server is doing. `missing`: no program was found. `failed`: it was, and does not serve. */
export type Health = 'stopped' | 'starting' | 'running' | 'failed' | 'missing';

/** What the language client says in the server's place where the connection is lost. */
const LOST = new Set<number>([ErrorCodes.PendingResponseRejected, ErrorCodes.ConnectionInactive]);

const STOP_TIMEOUT_MS = 4_000;

export interface Asking {
  /** Cancels the command where it is cancelled. */
  token?: CancellationToken;
  /** Gets what the server says about its progress. */
  progress?: (value: { message?: string; percentage?: number }) => void;
}

export class Server implements Disposable {
  readonly #health = new EventEmitter<Health>();
  readonly #ended = new EventEmitter<void>();
  readonly #pushes = new EventEmitter<{ method: string; params: Push }>();
  readonly #bundled: string;
  readonly #log: LogOutputChannel;
  readonly #trace: LogOutputChannel;
  #client: Client | undefined;
  #queue: Promise<void> = Promise.resolve();
  #waiting = 0;
  #tokens = 0;

  health: Health = 'stopped';
  program: Program | undefined;
  /** Why it does not serve, in words. */
  failure = '';

  readonly onDidChangeHealth = this.#health.event;
  readonly onPush = this.#pushes.event;
  /** The server ended although nobody had asked it to. */
  readonly onDidEnd = this.#ended.event;

  constructor(extension: Uri, log: LogOutputChannel, trace: LogOutputChannel) {
    this.#bundled = extension.fsPath + '/bundled';
    this.#log = log;
    this.#trace = trace;
  }

  /** The version the server told about itself. */
  get version(): string {
    return this.#client?.initializeResult?.serverInfo?.version ?? '';
  }

  /** The ids the server announced for `workspace/executeCommand`. */
  get commands(): string[] {
    return this.#client?.initializeResult?.capabilities.executeCommandProvider?.commands ?? [];
  }

  /** Stop what runs and start anew. Asked for again while that goes on, it is done once more, not more often. */
  restart(): Promise<void> {
    if (this.#waiting > 0) return this.#queue;
    this.#waiting++;
    this.#queue = this.#queue.then(async () => {
      this.#waiting--;
      await this.#stop();
      await this.#start();
    });
    return this.#queue;
  }

  /** Wait until a start that goes on has come to an end, good or bad. */
  async settled(): Promise<void> {
    if (this.health !== 'starting') return;
    await new Promise<void>((resolve) => {
      const listening = this.onDidChangeHealth(() => {
        listening.dispose();
        resolve();
      });
    });
  }

  async #start(): Promise<void> {
    this.#become('starting');
    const folder = workspace.workspaceFolders?.find(({ uri }) => uri.scheme === 'file')?.uri;
    const program = await findServer({
      configured: configuration.serverCommand(),
      python: await selectedPython(folder),
      path: process.env['PATH'],
      bundled: this.#bundled,
      platform: process.platform,
    });
    this.program = program;
    if (program === undefined) {
      this.#become('missing');
      return;
    }
    this.#log.info(`starting (${program.origin}): ${[program.command, ...program.args].join(' ')}`);
    const client = makeClient(program, folder?.fsPath ?? homedir(), {
      outputChannel: this.#log,
      traceOutputChannel: this.#trace,
    });
    this.#client = client;
    for (const method of Object.values(NOTIFICATIONS)) {
      client.onNotification(method, (params: Push) => this.#pushes.fire({ method, params }));
    }
    client.onDidChangeState(({ newState }) => {
      if (this.#client !== client) return;
      if (newState === State.Running) {
        void this.#ready(client);
        return;
      }
      if (this.health === 'running') this.#ended.fire();
      this.#become(newState === State.Starting ? 'starting' : 'stopped');
    });
    try {
      await client.start();
    } catch (error) {
      this.failure = error instanceof Error ? error.message : String(error);
      this.#log.error(this.failure);
      if (this.#client === client) this.#become('failed');
    }
  }

  async #ready(client: Client): Promise<void> {
    await this.#sendConfiguration(client);
    this.failure = '';
    this.#become('running');
  }

  /** Tell the server its settings, after a change of ours. */
  async sendConfiguration(): Promise<void> {
    if (this.#client !== undefined && this.health === 'running') await this.#sendConfiguration(this.#client);
  }

  async #sendConfiguration(client: Client): Promise<void> {
    const settings = { [CONFIGURATION_SECTION]: configuration.serverSettings() };
    await client.sendNotification('workspace/didChangeConfiguration', { settings });
  }

  /** Run one command of the server. Raises the server's error, whose message is a sentence for a person. */
  async execute<C extends Command>(
    command: C,
    args: Arguments<C> & Address,
    { token, progress }: Asking = {},
  ): Promise<Result<C>> {
    const client = this.#client;
    if (client === undefined || this.health !== 'running') throw new ServerNotRunning();
    if (!this.commands.includes(command)) throw new NotOffered(command);
    const workDoneToken = progress === undefined ? undefined : `piLs-${++this.#tokens}`;
    const listening =
      workDoneToken === undefined || progress === undefined
        ? undefined
        : client.onProgress(WorkDoneProgress.type, workDoneToken, (value) => {
            if (value.kind !== 'end') progress(shown(value));
          });
    const params = { command, arguments: [args], ...(workDoneToken === undefined ? {} : { workDoneToken }) };
    try {
      return (await client.sendRequest(ExecuteCommandRequest.type, params, token)) as Result<C>;
    } catch (error) {
      if (isAnswer(error)) throw error;
      this.#log.debug(`${command}: ${String(error)}`);
      throw new ServerWentAway();
    } finally {
      listening?.dispose();
    }
  }

  async #stop(): Promise<void> {
    const client = this.#client;
    this.#client = undefined;
    if (client === undefined) return;
    try {
      await client.stop(STOP_TIMEOUT_MS);
    } catch (error) {
      this.#log.warn(`the server was stopped with force: ${String(error)}`);
    }
    await client.dispose(STOP_TIMEOUT_MS).catch(() => undefined);
    this.#become('stopped');
  }

  #become(health: Health): void {
    if (this.health === health) return;
    this.health = health;
    this.#health.fire(health);
  }

  /** Stop for good; awaited when the extension is deactivated. */
  async stop(): Promise<void> {
    this.#queue = this.#queue.then(() => this.#stop());
    await this.#queue;
  }

  dispose(): void {
    this.#health.dispose();
    this.#ended.dispose();
    this.#pushes.dispose();
  }
}

const shown = ({
  message,
  percentage,
}: WorkDoneProgressBegin | WorkDoneProgressReport): { message?: string; percentage?: number } => ({
  ...(message === undefined ? {} : { message }),
  ...(percentage === undefined ? {} : { percentage }),
});

/** Whether the server itself said no; else the connection to it was lost before it could say anything. */
function isAnswer(error: unknown): boolean {
  return error instanceof ResponseError && !LOST.has(error.code);
}

/** The server ended, or was stopped, before it had answered. */
export class ServerWentAway extends Error {
  override name = 'ServerWentAway';
}

/** The server is older than this extension, and does not have the command that is the message. */
export class NotOffered extends Error {
  override name = 'NotOffered';
}

/** A command was asked of a server that is not there. */
export class ServerNotRunning extends Error {
  override name = 'ServerNotRunning';
}
