import assert from 'node:assert/strict';
import { test } from 'node:test';

import { SessionModel, titleOf } from '../../src/sessionModel';
import { state, usage } from './builders';

const W = 'file:///w';

function opened(...ids: string[]): SessionModel {
  const model = new SessionModel();
  for (const sessionId of ids) {
    model.apply('pi/session_opened', { ...state({ sessionId }), workspace: W });
  }
  return model;
}

test('the session that was opened last is its folder’s current one, and only its folder’s', () => {
  const model = opened('s1', 's2');
  model.apply('pi/session_opened', {
    ...state({ sessionId: 's3' }),
    workspace: 'file:///other',
  });
  assert.equal(model.current(W)?.id, 's2');
  assert.equal(model.current('file:///other')?.id, 's3');
});

test('usage of a session that is not current does not show as that of the current one', () => {
  const model = opened('s1', 's2');
  model.apply('pi/context_usage', { ...usage({ percent: 80 }), workspace: W, sessionId: 's1' });
  assert.equal(model.current(W)?.usage.percent, undefined);
  assert.equal(model.get('s1')?.usage.percent, 80);
});

test('every end of a compaction ends it: success, abort, failure', () => {
  for (const end of [{ result: {} }, { aborted: true }, { errorMessage: 'Compaction failed: x' }]) {
    const model = opened('s1');
    model.apply('pi/compaction_start', { reason: 'threshold', workspace: W, sessionId: 's1' });
    assert.equal(model.get('s1')?.compacting, 'threshold');
    model.apply('pi/compaction_end', { reason: 'threshold', ...end, workspace: W, sessionId: 's1' });
    assert.equal(model.get('s1')?.compacting, undefined);
  }
});

test('a state that is asked for corrects what a lost notification left behind', () => {
  const model = opened('s1');
  model.apply('pi/compaction_start', { reason: 'manual', workspace: W, sessionId: 's1' });
  model.told(W, state({ isCompacting: false }));
  assert.equal(model.get('s1')?.compacting, undefined);
});

test('a closed session leaves its folder without one', () => {
  const model = opened('s1', 's2');
  model.apply('pi/session_closed', { workspace: W, sessionId: 's2' });
  assert.equal(model.current(W), undefined);
  assert.equal(model.get('s1')?.id, 's1');
});

test('a server that is gone takes its sessions along', () => {
  const model = opened('s1');
  let told = 0;
  model.onDidChange(() => told++);
  model.clear();
  assert.equal(model.current(W), undefined);
  assert.equal(told, 1);
});

test('a run begins with the agent and ends when nothing of the prompt is left', () => {
  const model = opened('s1');
  const push = (method: string, fields: object = {}): void =>
    model.apply(method, { ...fields, workspace: W, sessionId: 's1' });
  push('pi/agent_start');
  push('pi/auto_retry_start', { attempt: 1, maxAttempts: 3 });
  assert.deepEqual(model.get('s1')?.retry, { attempt: 1, maxAttempts: 3 });
  push('pi/agent_end');
  assert.equal(model.get('s1')?.running, true);
  push('pi/agent_settled', { aborted: false });
  assert.equal(model.get('s1')?.running, false);
  assert.equal(model.get('s1')?.retry, undefined);
});

test('names, models and leaves are followed', () => {
  const model = opened('s1');
  const push = (method: string, fields: object): void =>
    model.apply(method, { ...fields, workspace: W, sessionId: 's1' });
  push('pi/session_info_changed', { name: 'New name' });
  push('pi/model_changed', { provider: 'p', modelId: 'm' });
  push('pi/entry_appended', { entry: { id: 'x' }, leafId: 'x', foreign: true });
  const now = model.get('s1')?.state;
  assert.deepEqual([now?.name, now?.model, now?.leafId], ['New name', { provider: 'p', id: 'm' }, 'x']);
  push('pi/model_changed', { provider: null, modelId: null });
  assert.equal(model.get('s1')?.state.model, undefined);
});

test('what is about a session nobody knows is passed over', () => {
  const model = opened('s1');
  let told = 0;
  model.onDidChange(() => told++);
  model.apply('pi/context_usage', { ...usage(), workspace: W, sessionId: 'nobody' });
  model.apply('pi/something_new', { workspace: W, sessionId: 's1' });
  assert.equal(told, 0);
});

test('a session without a name is called by how it begins, or where that is not known by its id', () => {
  const model = new SessionModel();
  const nameless = model.told(W, state({ sessionId: '019a2c5e-7b10-7c44-9d1e', name: '  ' }), true);
  assert.equal(titleOf(nameless), '019a2c5e-7b10');
  model.toldBeginning(nameless.id, `Find out\n where the ${'470 Wh '.repeat(9)}went`);
  assert.equal(titleOf(nameless), 'Find out where the 470 Wh 470 Wh 470 Wh 470 Wh 470…');
  nameless.state.name = 'Short day';
  assert.equal(titleOf(nameless), 'Short day');
});

test('a question waits until it is answered, here or elsewhere, or the run is over', () => {
  const model = opened('s1');
  const about = { workspace: W, sessionId: 's1' };
  const asking = (): number | undefined => model.current(W)?.asking.size;
  model.apply('pi/approval_request', { ...about, approvalId: 'q1' });
  model.apply('pi/approval_request', { ...about, approvalId: 'q2' });
  assert.equal(asking(), 2);
  model.apply('pi/approval_resolved', { ...about, approvalId: 'q1' });
  assert.equal(asking(), 1);
  model.apply('pi/agent_settled', { ...about, aborted: true });
  assert.equal(asking(), 0);
});

test('problems of a session are kept once each, those it had when it was opened too', () => {
  const model = new SessionModel();
  const problems = [{ kind: 'notSaved', message: 'The disk is full.' }];
  const told = model.told(W, state({ sessionId: 's1', problems }), true);
  const message = 'compaction.reserveTokens must be a number.';
  for (const method of ['pi/settings_problem', 'pi/settings_problem'])
    model.apply(method, { workspace: W, sessionId: 's1', message });
  model.apply('pi/session_problem', { workspace: W, sessionId: 's1', message: 'The disk is full.' });
  assert.deepEqual(told.problems, ['The disk is full.', message]);
});

test('what is told of a session before it is open is known when it is', () => {
  const model = new SessionModel();
  const about = { workspace: W, sessionId: 's1' };
  model.apply('pi/settings_problem', { ...about, message: 'reserveTokens must be a number.' });
  model.apply('pi/auto_compaction_paused', { ...about, reason: 'settings', message: 'Pauses for that.' });
  assert.equal(model.current(W), undefined);
  model.apply('pi/session_opened', { ...about, ...state({ sessionId: 's1' }) });
  assert.deepEqual(model.current(W)?.problems, ['reserveTokens must be a number.']);
  assert.equal(model.current(W)?.paused, 'Pauses for that.');
});
