// The TypeScript client package, version 2. Mode "auto" probes for the newest
// revision first, anything else is the package's default.
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { elicited, sampled, text } from './answers.mjs';

export async function open({ url, mode, onerror }) {
  const options = { capabilities: { sampling: {}, elicitation: {} } };
  if (mode) options.versionNegotiation = { mode };
  const client = new Client({ name: 'peer-v2', version: '1' }, options);
  client.setRequestHandler('sampling/createMessage', sampled);
  client.setRequestHandler('elicitation/create', elicited);
  client.onerror = onerror;
  const transport = new StreamableHTTPClientTransport(new URL(url));
  await client.connect(transport);
  return {
    version: () => transport.protocolVersion ?? '',
    call: async (name, args, options) => text(await client.callTool({ name, arguments: args }, options)),
    read: async uri => (await client.readResource({ uri })).contents[0].text,
    tools: async () => (await client.listTools()).tools.map(t => t.name),
    close: async () => {
      await transport.terminateSession();
      await client.close();
    },
  };
}
