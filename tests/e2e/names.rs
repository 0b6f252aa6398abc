//! Names of servers in DNS: requests follow them when their records expire.

use crate::common::{
    Gateway,
    dns::{DnsServer, Records},
    eventually,
    http::get,
    upstream::{Script, ok},
};
use hickory_resolver::proto::rr::{Name, RData, rdata::CNAME};
use std::{collections::BTreeSet, net::IpAddr, time::Duration, time::Instant};

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
    gateway.wait_log("name cannot be resolved; its last addresses stay name=\"shop.example\" error=DNS has no address for this name kept=2");
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
