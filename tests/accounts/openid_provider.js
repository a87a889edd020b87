// oidc-provider (panva), certified by the OpenID Foundation, with one client and people whose name is their subject.
import { createServer } from "node:http";
import Provider from "oidc-provider";

const [port, redirect] = process.argv.slice(2);
const claims = { name: "Ada Lovelace", email: "ada@example.org", groups: ["vision"] };
const provider = new Provider(`http://127.0.0.1:${port}`, {
  clients: [{ client_id: "falconweb", client_secret: "of-the-client", redirect_uris: [redirect] }],
  claims: { openid: ["sub"], profile: ["name", "preferred_username", "groups"], email: ["email"] },
  findAccount: (_, id) => ({ accountId: id, claims: () => ({ sub: id, preferred_username: id, ...claims }) }),
  pkce: { required: () => true },
});
process.stdin.on("end", () => process.exit()).resume(); // with the test that started it
createServer(provider.callback()).listen(Number(port), "127.0.0.1", () => process.stdout.write("listening\n"));
