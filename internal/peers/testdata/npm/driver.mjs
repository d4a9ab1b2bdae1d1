// Runs one of the official TypeScript clients on behalf of a test. Commands come
// as JSON lines on stdin, {seq, op, client, …}; each is answered by one line
// {seq, result} or {seq, error}, a call's progress by lines {seq, progress}
// before it. Everything is asynchronous, so one process serves many clients.
import { createInterface } from 'node:readline';

const { open } = await import(`./${process.argv[2]}.mjs`);
const clients = new Map();

const say = line => process.stdout.write(JSON.stringify(line) + '\n');

const ops = {
  async open({ client, url, mode }) {
    const errors = [];
    const opened = await open({ url, mode, onerror: e => errors.push(String(e?.message ?? e)) });
    clients.set(client, { ...opened, errors });
    return { version: opened.version() };
  },
  call({ seq, client, tool, args, quiet, timeout }) {
    const onprogress = quiet
      ? undefined
      : p => say({ seq, progress: p.progress });
    return clients.get(client).call(tool, args, { onprogress, timeout });
  },
  read: ({ client, uri }) => clients.get(client).read(uri),
  tools: ({ client }) => clients.get(client).tools(),
  errors: ({ client }) => clients.get(client).errors,
  async close({ client }) {
    await clients.get(client)?.close();
    clients.delete(client);
    return null;
  },
};

async function run(command) {
  try {
    say({ seq: command.seq, result: (await ops[command.op](command)) ?? null });
  } catch (e) {
    say({ seq: command.seq, error: { code: e?.code ?? 0, message: String(e?.message ?? e), data: e?.data ?? null } });
  }
}

process.on('unhandledRejection', e => process.stderr.write(`unhandled: ${e?.stack ?? e}\n`));

for await (const line of createInterface({ input: process.stdin })) run(JSON.parse(line));
process.exit(0);
