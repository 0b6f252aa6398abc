//! Logins that hold for a connection, not for a request: NTLM, and Kerberos as IIS uses it. No other
//! client may get one.

use crate::common::{
    Gateway, eventually,
    http::Client,
    http2::{self, Client as Http2Client},
    upstream::{self, Connection, Script},
};

const ASKS: &str = "HTTP/1.1 401 Unauthorized\r\nwww-authenticate: Basic realm=\"a\", Negotiate\r\n\
                    www-authenticate: NTLM\r\ncontent-length: 0\r\n\r\n";
const CHALLENGES: &str = "HTTP/1.1 401 Unauthorized\r\nwww-authenticate: NTLM challenge\r\n\
                          content-length: 0\r\n\r\n";

/// Answers with the user that has logged in on its connection. `/open` needs no login.
fn serve(_: usize, mut connection: Connection) {
    let mut user = None;
    let mut is_challenged = false;
    while let Some(request) = connection.read() {
        let credentials = request.header("authorization").unwrap_or_default();
        let logs_in = credentials
            .strip_prefix("NTLM answer-")
            .filter(|_| is_challenged)
            .or_else(|| credentials.strip_prefix("Negotiate "));
        if let Some(name) = logs_in {
            user = Some(name.to_owned());
        }
        is_challenged = credentials == "NTLM hello";
        let answer = match &user {
            _ if is_challenged => CHALLENGES.into(),
            Some(name) => upstream::ok(name),
            None if request.path() == "/open" => upstream::ok("anonymous"),
            None => ASKS.into(),
        };
        connection.write(answer);
    }
}

/// A gateway with one worker in front of `servers`, with further `settings`.
fn in_front_of(servers: &[Script], settings: &str) -> Gateway {
    let servers = servers.iter().map(|server| format!("{{ url: \"http://{}\" }}", server.address));
    let servers: Vec<_> = servers.collect();
    Gateway::start(&format!(
        "workers: 1\nlisteners: [{{ name: web, listen: 127.0.0.1:0 }}]\n{settings}\
         upstreams: [{{ name: up, servers: [{}] }}]\n\
         routes: [{{ name: all, match: {{ path_prefix: / }}, upstream: up }}]\n",
        servers.join(", ")
    ))
}

fn log_in(client: &mut Client, credentials: &str) -> (u16, String) {
    let answer = client.request("GET", "/", &[("Authorization", credentials)]);
    (answer.status, answer.text())
}

#[test]
fn a_login_that_holds_for_a_connection_works_and_reaches_no_other_client() {
    let servers = [Script::start(serve), Script::start(serve)];
    let gateway = in_front_of(&servers, "");
    let mut before = Client::new(gateway.web());
    // Their connections are shared by then.
    for _ in 0..4 {
        assert_eq!(before.get("/open").text(), "anonymous");
    }
    let mut ntlm = Client::new(gateway.web());
    assert_eq!(ntlm.get("/").status, 401);
    assert_eq!(log_in(&mut ntlm, "NTLM hello").0, 401);
    assert_eq!(log_in(&mut ntlm, "NTLM answer-alice"), (200, "alice".to_owned()));
    let mut kerberos = Client::new(gateway.web());
    assert_eq!(kerberos.get("/").status, 401);
    assert_eq!(log_in(&mut kerberos, "Negotiate bob"), (200, "bob".to_owned()));
    for _ in 0..4 {
        // They have logged in, whatever is asked for in between.
        assert_eq!(ntlm.get("/").text(), "alice");
        assert_eq!(ntlm.request("POST", "/", &[("Content-Length", "0")]).text(), "alice");
        assert_eq!(kerberos.get("/").text(), "bob");
        assert_eq!(before.get("/open").text(), "anonymous");
        assert_eq!(Client::new(gateway.web()).get("/open").text(), "anonymous");
        assert_eq!(Client::new(gateway.web()).get("/").status, 401);
    }
    drop((ntlm, kerberos));
    for _ in 0..8 {
        assert_eq!(Client::new(gateway.web()).get("/open").text(), "anonymous");
        assert_eq!(before.get("/open").text(), "anonymous");
    }
}

#[test]
fn the_connection_of_a_login_ends_with_its_clients() {
    let (ended, ends) = std::sync::mpsc::channel();
    let server = Script::start(move |number, connection| {
        serve(number, connection);
        ended.send(number).expect("the test waits");
    });
    let servers = [server];
    let gateway = in_front_of(&servers, "");
    let mut client = Client::new(gateway.web());
    // One that the server has not asked for holds no connection.
    assert_eq!(log_in(&mut client, "CredSSP x").0, 401);
    let mut other = Client::new(gateway.web());
    assert_eq!(log_in(&mut other, "Negotiate dora"), (200, "dora".to_owned()));
    eventually("the server's connection ends", || ends.try_recv().ok());
    assert_eq!(other.get("/open").text(), "anonymous");
    assert_eq!(log_in(&mut client, "Negotiate carol"), (200, "carol".to_owned()));
    assert_eq!(client.get("/open").text(), "carol");
    assert!(ends.try_recv().is_err());
    drop(client);
    eventually("the server's connection ends", || ends.try_recv().ok());
}

#[test]
fn a_peer_that_becomes_a_proxy_has_no_login_any_more() {
    let servers = [Script::start(serve)];
    let gateway = in_front_of(&servers, "");
    let mut client = Client::new(gateway.web());
    assert_eq!(client.get("/").status, 401);
    assert_eq!(log_in(&mut client, "Negotiate frank"), (200, "frank".to_owned()));
    let file = std::fs::read_to_string(gateway.dir.path().join("gateway.yaml")).expect("a file");
    gateway.edit(&format!("trusted_proxies: [127.0.0.1]\n{file}"));
    assert_eq!(client.get("/open").text(), "anonymous");
}

#[test]
fn a_connection_with_requests_of_several_clients_has_no_login() {
    let servers = [Script::start(serve)];
    // Over HTTP/2, and from a proxy.
    let gateway = in_front_of(&servers, "");
    let mut client = Http2Client::new(gateway.web());
    let logs_in = [("host", "a"), ("authorization", "Negotiate dave")];
    client.get(1, "/", &logs_in);
    assert_eq!(http2::body(&client.answer(1)), "dave");
    client.get(3, "/open", &[("host", "a")]);
    assert_eq!(http2::body(&client.answer(3)), "anonymous");
    let gateway = in_front_of(&servers, "trusted_proxies: [127.0.0.1]\n");
    let mut proxy = Client::new(gateway.web());
    assert_eq!(log_in(&mut proxy, "Negotiate erin"), (200, "erin".to_owned()));
    assert_eq!(proxy.get("/open").text(), "anonymous");
    assert_eq!(Client::new(gateway.web()).get("/open").text(), "anonymous");
}
