// The TypeScript SDK, version 1.
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { CreateMessageRequestSchema, ElicitRequestSchema } from '@modelcontextprotocol/sdk/types.js';
import { elicited, sampled, text } from './answers.mjs';

export async function open({ url, onerror }) {
  const client = new Client({ name: 'peer-v1', version: '1' }, { capabilities: { sampling: {}, elicitation: {} } });
  client.setRequestHandler(CreateMessageRequestSchema, sampled);
  client.setRequestHandler(ElicitRequestSchema, elicited);
  client.onerror = onerror;
  const transport = new StreamableHTTPClientTransport(new URL(url));
  await client.connect(transport);
  return {
    version: () => transport.protocolVersion ?? '',
    call: async (name, args, options) => text(await client.callTool({ name, arguments: args }, undefined, options)),
    read: async uri => (await client.readResource({ uri })).contents[0].text,
    tools: async () => (await client.listTools()).tools.map(t => t.name),
    close: async () => {
      await transport.terminateSession();
      await client.close();
    },
  };
}
