//! Names of servers in DNS: requests follow them when their records expire.

use crate::common::{
    Gateway,
    dns::{DnsServer, Records},
    eventually,
    http::{Client, get, head},
    upstream::{Script, ok},
};
use hickory_resolver::proto::rr::{Name, RData, RecordType, rdata::CNAME};
use std::{
    collections::BTreeSet,
    net::{IpAddr, SocketAddr, TcpListener},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
        mpsc,
    },
    time::Duration,
    time::Instant,
};

/// Longer than a test waits.
const LONG: u32 = 3600;

/// A server at each address of this machine, which says at which one it got a request.
fn everywhere() -> Script {
    Script::start_at(([0, 0, 0, 0], 0).into(), |_, mut connection| {
        let here = connection.stream.get_ref().local_addr().expect("an address").ip().to_string();
        while connection.read().is_some() {
            if connection.write(ok(&here)).is_none() {
                return;
            }
        }
    })
}

#[expect(clippy::unnecessary_wraps, reason = "as a name without addresses has it")]
fn addresses(ttl: u32, last: &[u8]) -> Records {
    Some(last.iter().map(|last| (ttl, RData::from(IpAddr::from([127, 0, 0, *last])))).collect())
}

fn config(dns: &DnsServer, server: &Script, keys: &str) -> String {
    format!(
        "listeners: [{{ name: web, listen: '127.0.0.1:0' }}]\n\
         dns_servers: ['{}']\n\
         upstreams: [{{ name: up, servers: [{{ url: 'http://shop.example:{}' }}]{keys} }}]\n\
         routes: [{{ name: all, match: {{ path_prefix: / }}, upstream: up }}]\n",
        dns.address,
        server.address.port()
    )
}

/// Asks ten times, and returns the addresses that answered.
fn answering(gateway: &Gateway) -> BTreeSet<String> {
    let answers = (0..10).map(|_| {
        let answer = get(gateway.web(), "/");
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer.text()
    });
    answers.collect()
}

fn wait_for(gateway: &Gateway, last: &[u8]) {
    let wanted = last.iter().map(|last| format!("127.0.0.{last}")).collect::<BTreeSet<_>>();
    eventually("these addresses answer", || (answering(gateway) == wanted).then_some(()));
}

#[test]
fn requests_follow_a_name_when_its_records_expire() {
    let server = everywhere();
    let dns = DnsServer::start(addresses(1, &[2, 3]));
    let gateway = Gateway::start(&config(&dns, &server, ""));
    eventually("it is resolved", || (get(gateway.web(), "/").status == 200).then_some(()));
    wait_for(&gateway, &[2, 3]);
    dns.set(addresses(1, &[3, 4]));
    wait_for(&gateway, &[3, 4]);
    gateway.wait_log("the addresses of a name have changed name=\"shop.example\"");
    // DNS that fails changes nothing.
    dns.set(None);
    gateway.wait_log("name cannot be resolved; its last addresses stay name=\"shop.example\" error=\"DNS has no address for this name\" kept=2");
    wait_for(&gateway, &[3, 4]);
    dns.set(addresses(LONG, &[5]));
    wait_for(&gateway, &[5]);
}

#[test]
fn the_shortest_time_to_live_counts_also_that_of_an_alias() {
    let server = everywhere();
    let alias = Name::from_ascii("shop-blue.example.").expect("a name");
    let behind_alias = |last| {
        let mut records = addresses(LONG, &[last]).expect("there are some");
        records.insert(0, (1, RData::CNAME(CNAME(alias.clone()))));
        Some(records)
    };
    let dns = DnsServer::start(behind_alias(2));
    let gateway = Gateway::start(&config(&dns, &server, ""));
    eventually("it is resolved", || (get(gateway.web(), "/").status == 200).then_some(()));
    let begin = Instant::now();
    dns.set(behind_alias(3));
    wait_for(&gateway, &[3]);
    assert!(begin.elapsed() < Duration::from_secs(LONG.into()));
}

#[test]
fn other_dns_servers_are_asked_at_once() {
    let server = everywhere();
    let [first, second] = [&[2], &[3]].map(|last| DnsServer::start(addresses(LONG, last)));
    let text = config(&first, &server, "");
    let gateway = Gateway::start(&text);
    eventually("it is resolved", || (get(gateway.web(), "/").status == 200).then_some(()));
    wait_for(&gateway, &[2]);
    let asked = first.questions();
    gateway.edit(&config(&second, &server, ""));
    wait_for(&gateway, &[3]);
    assert_eq!((asked, first.questions()), (2, 2), "for IPv4 and for IPv6, and not again");
    // An interval does not wait for the records to expire.
    gateway.edit(&config(&second, &server, ", resolve: 1s"));
    second.set(addresses(LONG, &[4]));
    wait_for(&gateway, &[4]);
}

#[test]
fn a_truncated_answer_is_asked_for_again_over_tcp() {
    let server = everywhere();
    let (dns, over_tcp) = DnsServer::truncating(addresses(1, &[2]));
    let gateway = Gateway::start(&config(&dns, &server, ""));
    eventually("it is resolved", || (get(gateway.web(), "/").status == 200).then_some(()));
    wait_for(&gateway, &[2]);
    // More than the 512 bytes of a plain UDP answer.
    let many: Vec<u8> = (100..150).collect();
    dns.set(addresses(LONG, &many));
    let line = gateway.wait_log("the addresses of a name have changed");
    assert!(many.iter().all(|last| line.contains(&format!("127.0.0.{last}"))), "{line}");
    assert!(over_tcp.load(Ordering::SeqCst) >= 4, "for IPv4 and for IPv6, twice");
}

#[test]
fn a_name_whose_only_server_is_not_there_is_resolved_again() {
    let (old, new) = two_of_one_port();
    drop(old);
    let server = Script::serve(new, |_, mut connection| {
        while connection.read().is_some() {
            if connection.write(ok("new")).is_none() {
                return;
            }
        }
    });
    let dns = DnsServer::start(addresses(LONG, &[2]));
    let gateway = Gateway::start(&config(&dns, &server, ""));
    eventually("it is resolved", || (dns.questions() >= 2).then_some(()));
    eventually("the address refuses", || {
        assert_eq!(get(gateway.web(), "/").status, 502);
        gateway.log().contains("Connection refused").then_some(())
    });
    dns.set(addresses(LONG, &[3]));
    eventually("requests follow the name", || {
        (get(gateway.web(), "/").status == 200).then_some(())
    });
}

#[test]
fn a_reload_and_an_edit_of_the_upstream_resolve_a_name_again() {
    let server = everywhere();
    let dns = DnsServer::start(addresses(LONG, &[2]));
    let gateway = Gateway::start(&config(&dns, &server, ""));
    eventually("it is resolved", || (get(gateway.web(), "/").status == 200).then_some(()));
    wait_for(&gateway, &[2]);
    dns.set(addresses(LONG, &[3]));
    gateway.signal("HUP");
    wait_for(&gateway, &[3]);
    dns.set(addresses(LONG, &[4]));
    gateway.edit(&config(&dns, &server, ", max_idle: 7"));
    wait_for(&gateway, &[4]);
}

#[test]
fn a_dns_server_that_does_not_answer_for_ipv6_delays_no_address_of_ipv4() {
    let server = everywhere();
    let dns = DnsServer::start(addresses(LONG, &[2]));
    dns.ignore(RecordType::AAAA);
    let gateway = Gateway::start(&config(&dns, &server, ""));
    let begin = Instant::now();
    eventually("it is resolved", || (get(gateway.web(), "/").status == 200).then_some(()));
    // flowgate gives up the question about IPv6 after 5 s.
    assert!(begin.elapsed() < Duration::from_secs(4), "{:?}", begin.elapsed());
    wait_for(&gateway, &[2]);
}

#[test]
fn a_dns_server_that_does_not_answer_for_ipv6_delays_no_change_of_ipv4() {
    let server = everywhere();
    let dns = DnsServer::start(addresses(1, &[2]));
    dns.ignore(RecordType::AAAA);
    let gateway = Gateway::start(&config(&dns, &server, ""));
    eventually("it is resolved", || (get(gateway.web(), "/").status == 200).then_some(()));
    for last in 3..6 {
        let begin = Instant::now();
        dns.set(addresses(1, &[last]));
        wait_for(&gateway, &[last]);
        assert!(begin.elapsed() < Duration::from_secs(4), "{:?}", begin.elapsed());
    }
}

/// What the two servers of a moving name have seen.
#[derive(Default)]
struct Seen {
    /// The ids of the POSTs, in the order in which they came.
    posts: Mutex<Vec<String>>,
    /// The connections to the old server that are open, and how many there were.
    open: AtomicUsize,
    opened: AtomicUsize,
}

/// A server that notes POSTs. A GET of `/slow` gets the half of its answer, and the rest after
/// `rest` has a message.
fn noting(listener: TcpListener, seen: &Arc<Seen>, rest: Option<mpsc::Receiver<()>>) -> Script {
    let seen = Arc::clone(seen);
    let is_old = rest.is_some();
    let rest = Mutex::new(rest);
    Script::serve(listener, move |_, mut connection| {
        if is_old {
            seen.open.fetch_add(1, Ordering::SeqCst);
            seen.opened.fetch_add(1, Ordering::SeqCst);
        }
        while let Some(request) = connection.read() {
            if request.line.starts_with("POST") {
                let id = String::from_utf8_lossy(&request.body).into_owned();
                seen.posts.lock().expect("no panic").push(id);
            }
            let answer = ok(if is_old { "old" } else { "new" });
            let wait_after =
                if request.path() == "/slow" { answer.len() - 1 } else { answer.len() };
            let (first, second) = answer.split_at(wait_after);
            if connection.write(first).is_none() {
                break;
            }
            if !second.is_empty() {
                let rest = rest.lock().expect("no panic");
                rest.as_ref().expect("only the old one is asked").recv().expect("a message");
            }
            if connection.write(second).is_none() {
                break;
            }
        }
        if is_old {
            seen.open.fetch_sub(1, Ordering::SeqCst);
        }
    })
}

/// Listeners at two addresses of this machine with the same port.
fn two_of_one_port() -> (TcpListener, TcpListener) {
    eventually("a port is free at both", || {
        let old = TcpListener::bind("127.0.0.2:0").expect("bound");
        let port = old.local_addr().expect("an address").port();
        Some((old, TcpListener::bind(("127.0.0.3", port)).ok()?))
    })
}

/// Sends GETs and POSTs in turn until `is_over`, and returns the ids of the POSTs. All succeed.
fn visit(
    web: SocketAddr,
    number: usize,
    served: &AtomicUsize,
    is_over: &AtomicBool,
) -> Vec<String> {
    let mut client = Client::new(web);
    let mut ids = Vec::new();
    while !is_over.load(Ordering::SeqCst) {
        assert_eq!(client.get("/").status, 200);
        let id = format!("{number:03} {:05}", ids.len());
        client.send(head("POST", "/", &[("Content-Length", &id.len().to_string())]) + &id);
        assert_eq!(client.read("POST").status, 200);
        ids.push(id);
        served.fetch_add(1, Ordering::SeqCst);
    }
    ids
}

#[test]
fn a_change_of_addresses_loses_no_request() {
    let (old_listener, new_listener) = two_of_one_port();
    let seen = Arc::<Seen>::default();
    let (finish, rest) = mpsc::channel();
    let old = noting(old_listener, &seen, Some(rest));
    let new = noting(new_listener, &seen, None);
    let dns = DnsServer::start(addresses(1, &[2]));
    // One worker: after it has closed its idle connections, it sends nothing to the old address.
    let text = config(&dns, &old, ", idle_timeout: 5m, connect_timeout: 5m");
    let gateway = Gateway::start(&format!("workers: 1\n{text}"));
    let web = gateway.web();
    eventually("it is resolved", || (get(web, "/").status == 200).then_some(()));
    let mut slow = Client::new(web);
    slow.send(head("GET", "/slow", &[]));
    let slow_head = slow.read_head().expect("an answer");
    let served = Arc::<AtomicUsize>::default();
    let is_over = Arc::<AtomicBool>::default();
    let clients = [0, 1, 2, 3].map(|number| {
        let served = Arc::clone(&served);
        let is_over = Arc::clone(&is_over);
        std::thread::spawn(move || visit(web, number, &served, &is_over))
    });
    let wait_for_more = || {
        let before = served.load(Ordering::SeqCst);
        eventually("requests are served", || {
            (served.load(Ordering::SeqCst) >= before + 200).then_some(())
        });
    };
    let only_the_slow_is_left = || {
        eventually("the idle connections to the old address are closed", || {
            (seen.open.load(Ordering::SeqCst) == 1).then_some(())
        });
    };
    wait_for_more();
    assert!(seen.opened.load(Ordering::SeqCst) > 1 && new.connections() == 0);

    dns.set(addresses(LONG, &[3]));
    gateway.wait_log("the addresses of a name have changed");
    assert_eq!(get(web, "/").text(), "new", "the log says what is in force");
    only_the_slow_is_left();
    // The old server has accepted what had connected before this request.
    assert_eq!(get(old.address, "/").text(), "old");
    only_the_slow_is_left();
    finish.send(()).expect("awaited");
    let answer = slow.read_body(slow_head, "GET");
    assert!(answer.complete && answer.text() == "old", "{answer:?}");
    eventually("its connection is closed", || {
        (seen.open.load(Ordering::SeqCst) == 0).then_some(())
    });
    drop(old);
    wait_for_more();
    is_over.store(true, Ordering::SeqCst);
    let sent = clients.map(|client| client.join().expect("every request succeeds"));
    let sent: Vec<String> = sent.into_iter().flatten().collect();
    let mut arrived = seen.posts.lock().expect("no panic").clone();
    arrived.sort_unstable();
    assert_eq!(arrived, sent, "each POST arrives once");
    assert_eq!(get(web, "/").text(), "new");
}
