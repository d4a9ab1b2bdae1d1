// What the clients answer when the server asks, and how a result is read.
export const sampled = async () => ({ model: 'peer', role: 'assistant', content: { type: 'text', text: 'sampled by the peer' } });

export const elicited = async () => ({ action: 'decline' });

export const text = result => (result.isError ? 'isError: ' : '') + result.content.map(c => c.text ?? c.type).join('\n');
