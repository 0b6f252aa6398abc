// Answers each request with its method and the length of its body, and says how many connections
// have been opened. Prints its port, and a line when a connection has been closed. Ends with its
// standard input.
//
// Without an argument it does as Node does by default: it announces when it closes an idle
// connection. With `silent` it closes sooner and does not say so. With `closing` it closes all idle
// connections again and again.
const http = require('http');

const mode = process.argv[2];
let opened = 0;
const server = http.createServer((request, response) => {
  let length = 0;
  request.on('data', (part) => { length += part.length; });
  response.setHeader('X-Opened', opened);
  // Node announces nothing beside such a header.
  if (mode) response.setHeader('Connection', 'keep-alive');
  request.on('end', () => response.end(`${request.method} ${length}`));
});
// Newer versions of Node add a second.
if (mode === 'silent') server.keepAliveTimeout = 50;
if (mode === 'closing') setInterval(() => server.closeIdleConnections(), 10);
server.on('connection', (socket) => {
  opened += 1;
  socket.on('close', () => console.log('closed'));
});
server.listen(0, '127.0.0.1', () => console.log(server.address().port));
process.stdin.on('end', () => process.exit()).resume();
