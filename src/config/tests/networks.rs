//! Lists of networks, and files of them.

use super::{FRAME, messages, plan, warnings};
use crate::{
    config::{Live, Plan, Retired, Watched, describe, diff, read, read_rules},
    flow::Instant,
    geo::Located,
};
use std::{
    fs,
    net::{IpAddr, Ipv4Addr},
    path::{Path, PathBuf},
};

/// Writes a configuration with every kind of list, each of which names `networks.txt`.
fn with_file(folder: &Path, networks: &str) -> PathBuf {
    let file = folder.join("gateway.yaml");
    let frame = FRAME.replace("name: web,", "name: web, trusted_proxies: { file: lists/n.txt },");
    let text = format!(
        "{frame}trusted_proxies: [198.51.100.1, {{ file: lists/n.txt }}]\n\
         routes:\n  - name: a\n    match: {{ path: /a }}\n    upstream: app\n\
         \x20   access: {{ deny: [192.0.2.1, {{ file: lists/n.txt }}] }}\n\
         \x20   flow:\n\
         \x20     - name: r\n        limit: 1/1s\n        key: client_ip\n\
         \x20       except: {{ client_ip: [{{ file: lists/n.txt }}] }}\n\
         \x20       overrides: [{{ when: {{ client_ip: [198.51.100.2, {{ file: lists/n.txt }}] }}, limit: 5/1s }},\n\
         \x20         {{ when: {{ client_ip: {{ file: lists/n.txt }}, method: GET }}, limit: 7/1s }}]\n\
         \x20 - {{ name: b, match: {{ path: /b }}, upstream: app, access: {{ allow: {{ file: lists/n.txt }} }} }}\nend: true\n"
    );
    fs::create_dir_all(folder.join("lists")).unwrap();
    fs::write(&file, text).unwrap();
    fs::write(folder.join("lists/n.txt"), networks).unwrap();
    file
}

fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

#[test]
fn a_file_is_an_entry_of_every_list_of_networks() {
    let folder = tempfile::tempdir().unwrap();
    let text = "\u{feff}# spammers\r\n10.0.0.0/8\r\n\r\n  2001:db8::/32  # and these\r\n::ffff:203.0.113.9\n";
    let file = with_file(folder.path(), text);
    for plan in [read(&file).unwrap(), read_rules(&file).unwrap()] {
        let lists = |plan: &Plan| {
            let [a, b] = [0, 1].map(|at| plan.routes[at].options.access.clone().unwrap());
            let except = plan.routes[0].rules[0].except.clone().unwrap();
            move |client: &str| {
                let client = address(client);
                [
                    a.allows(client, Located::default()),
                    b.allows(client, Located::default()),
                    except.network_of(client).is_some(),
                ]
            }
        };
        let lists = lists(&plan);
        for inside in ["10.1.2.3", "2001:db8::1", "203.0.113.9"] {
            assert_eq!(lists(inside), [false, true, true], "{inside}");
            assert!(plan.settings.trusted_proxies.contains(address(inside)), "{inside}");
            let own = plan.listeners[0].trusted_proxies.as_ref().unwrap();
            assert!(own.contains(address(inside)) && !own.contains(address("198.51.100.1")));
        }
        assert_eq!(lists("192.0.2.1"), [false, false, false]);
        assert_eq!(lists("192.0.2.2"), [true, false, false]);
        let rules = &plan.routes[0].rules;
        let words: Vec<_> =
            rules.iter().filter_map(|rule| Some(rule.when.as_ref()?.words().to_string())).collect();
        assert_eq!(
            words,
            ["client_ip=198.51.100.2/32|lists/n.txt", "client_ip=lists/n.txt, method=GET"]
        );
        let said = describe(&plan);
        assert!(said.contains("deny 192.0.2.1/32, lists/n.txt (3 networks)"), "{said}");
        assert!(plan.files.contains(&Watched::File(folder.path().join("lists/n.txt"))));
    }
}

#[test]
fn an_edit_of_a_file_is_an_edit_of_its_lists_and_keeps_the_state_of_overrides() {
    let folder = tempfile::tempdir().unwrap();
    let file = with_file(folder.path(), "10.0.0.0/8\n");
    let old = read(&file).unwrap();
    let live = Live::start(read(&file).unwrap(), Instant::EPOCH);
    let apply =
        || live.apply(read(&file).unwrap(), Instant::EPOCH, &mut Retired::default()).to_string();
    // A comment changes no list.
    fs::write(folder.path().join("lists/n.txt"), "# none\n").unwrap();
    let new = read(&file).unwrap();
    let said = diff(&old, &new).to_string();
    for expected in ["trusted_proxies", "route a", "access"] {
        assert!(said.contains(expected), "{said}");
    }
    let said = apply();
    assert!(said.contains("route a") && said.contains("reset 0"), "{said}");
    // A list of an empty file has no address: the override is for none, and `allow` for none.
    assert!(
        !new.routes[1]
            .options
            .access
            .as_ref()
            .unwrap()
            .allows(address("10.0.0.1"), Located::default())
    );
    assert!(apply().contains("nothing changed"));
}

#[test]
fn a_file_that_cannot_be_used_is_one_error_with_its_line() {
    let folder = tempfile::tempdir().unwrap();
    let many = (0..=100_000_u32).map(|n| format!("{}\n", Ipv4Addr::from_bits(n)));
    let many: String = many.collect();
    for (networks, expected) in [
        ("10.0.0.0/8\n\n10.0.0.0/33\n", "cannot be used: line 3: `10.0.0.0/33` is not a network"),
        ("# a\n300.1.1.1 # b\n", "cannot be used: line 2: `300.1.1.1` is not a network"),
        // It may be another file, with secrets.
        ("root:x:0:0:root:/root:/bin/sh\n", "cannot be used: line 1: it is not a network"),
        ("deny 10.0.0.1;\n", "cannot be used: line 1: it is not a network"),
        ("", "is empty"),
        (&many, "cannot be used: line 100001: more than 100000 networks"),
    ] {
        let drawn = read(&with_file(folder.path(), networks)).unwrap_err().to_string();
        assert_eq!(drawn.matches(expected).count(), 1, "{drawn}");
        assert!(drawn.contains("the network file `") && drawn.contains("lists/n.txt`"), "{drawn}");
        assert!(!drawn.contains("root:"), "{drawn}");
    }
    let file = with_file(folder.path(), "10.0.0.1");
    fs::remove_file(folder.path().join("lists/n.txt")).unwrap();
    let drawn = read(&file).unwrap_err().to_string();
    assert!(drawn.contains("cannot read the network file"), "{drawn}");
}

#[test]
fn a_line_may_repeat_another_or_have_host_bits_and_the_latter_is_a_warning() {
    let folder = tempfile::tempdir().unwrap();
    let file = with_file(folder.path(), "10.0.0.0/8\n192.0.2.7/24\n10.0.0.0/8\n198.51.100.9/31\n");
    let plan = read(&file).unwrap();
    let access = plan.routes[0].options.access.as_ref().unwrap();
    for denied in ["10.1.2.3", "192.0.2.200", "198.51.100.8"] {
        assert!(!access.allows(address(denied), Located::default()), "{denied}");
    }
    assert!(access.allows(address("198.51.100.10"), Located::default()));
    let warned: Vec<_> = plan.warnings.list().map(|warning| warning.message).collect();
    let expected = "line 2 of lists/n.txt, the first of 2: `192.0.2.7/24` has host bits: flowgate \
                    takes it for `192.0.2.0/24`";
    assert_eq!(warned.iter().filter(|warning| *warning == expected).count(), 1, "{warned:?}");
}

#[test]
fn a_file_that_two_rules_name_is_renewed_for_both() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("gateway.yaml");
    let list = folder.path().join("n.txt");
    let rule = |name| {
        format!("{{ name: {name}, limit: 1/1s, except: {{ client_ip: {{ file: n.txt }} }} }}")
    };
    let text = format!(
        "{FRAME}routes: [{{ name: a, match: {{ path: /a }}, upstream: app, flow: [{}, {}] }}]\n",
        rule("one"),
        rule("two")
    );
    fs::write(&file, text).unwrap();
    fs::write(&list, "10.0.0.0/8\n").unwrap();
    let live = Live::start(read(&file).unwrap(), Instant::EPOCH);
    fs::write(&list, "192.0.2.0/24\n").unwrap();
    live.apply(read(&file).unwrap(), Instant::EPOCH, &mut Retired::default());
    let snapshot = live.load();
    for rule in &snapshot.routes[0].rules {
        let except = rule.except.as_ref().unwrap();
        assert!(except.network_of(address("192.0.2.1")).is_some());
        assert!(except.network_of(address("10.0.0.1")).is_none());
    }
}

#[test]
fn a_relative_name_in_an_included_file_is_meant_from_the_folder_of_that_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("gateway.yaml");
    fs::write(&file, format!("{FRAME}include: [teams/*.yaml]\n")).unwrap();
    fs::create_dir(folder.path().join("teams")).unwrap();
    let team = "routes:\n  - name: a\n    match: { path: /a }\n    upstream: app\n    access: { deny: { file: deny.txt } }\n";
    fs::write(folder.path().join("teams/a.yaml"), team).unwrap();
    let list = folder.path().join("teams/deny.txt");
    fs::write(&list, "10.0.0.0/8\nten\n").unwrap();
    let drawn = read(&file).unwrap_err().to_string();
    assert!(drawn.contains("deny.txt` cannot be used: line 2"), "{drawn}");
    assert!(drawn.contains("teams/a.yaml:5:"), "{drawn}");

    fs::write(&list, "10.0.0.0/8\n").unwrap();
    let plan = read(&file).unwrap();
    assert!(
        !plan.routes[0]
            .options
            .access
            .as_ref()
            .unwrap()
            .allows(address("10.0.0.1"), Located::default())
    );
    assert!(plan.files.contains(&Watched::File(list)));
}

#[test]
fn a_network_behind_nat64_counts_as_its_ipv4_form_in_a_file_too() {
    let folder = tempfile::tempdir().unwrap();
    let read = |nat64: &str, access: &str| {
        let file = folder.path().join("gateway.yaml");
        let text = format!(
            "{FRAME}{nat64}routes: [{{ name: a, match: {{ path: /a }}, upstream: app, access: {access} }}]\n"
        );
        fs::write(&file, text).unwrap();
        read(&file)
    };
    let list = folder.path().join("n.txt");
    fs::write(&list, "64:ff9b::c000:200/120\n2001:db8::c633:6400/120\n").unwrap();
    let nat64 = "nat64: 2001:db8::/96\n";
    for (nat64, is_denied) in [("", [true, false]), (nat64, [true, true])] {
        let plan = read(nat64, "{ deny: { file: n.txt } }").unwrap();
        let access = plan.routes[0].options.access.clone().unwrap();
        let denied = ["192.0.2.1", "198.51.100.1"]
            .map(|client| !access.allows(address(client), Located::default()));
        assert_eq!(denied, is_denied, "{nat64}");
    }

    // Both are the same network behind this prefix.
    let plan = read(nat64, "{ allow: 198.51.100.0/25, deny: '2001:db8::c633:6400/120' }").unwrap();
    let warned: Vec<_> = plan.warnings.list().map(|warning| warning.message).collect();
    assert_eq!(warned, ["`198.51.100.0/25` is allowed and denied"]);

    fs::write(&list, "10.0.0.0/8\n64:ff9b::/96\n").unwrap();
    let drawn = read("", "{ deny: { file: n.txt } }").unwrap_err().to_string();
    assert!(drawn.contains("line 2: `64:ff9b::/96` is a prefix of NAT64"), "{drawn}");
}

#[test]
fn proxies_of_a_file_that_are_everybody_are_a_warning_with_their_line() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("gateway.yaml");
    let routes = "routes: [{ name: a, match: { path: /a }, upstream: app }]\n";
    fs::write(&file, format!("{FRAME}trusted_proxies: [0.0.0.0/1, {{ file: n.txt }}]\n{routes}"))
        .unwrap();
    let warned = |networks: &str| {
        fs::write(folder.path().join("n.txt"), networks).unwrap();
        read(&file).unwrap().warnings.to_string()
    };
    let drawn = warned("10.0.0.0/8\n128.0.0.0/1\n");
    assert!(drawn.contains("`trusted_proxies` has every IPv4 address"), "{drawn}");
    let drawn = warned("# all\n::/0\n");
    assert!(drawn.contains("line 2 of n.txt: any client's `X-Forwarded-For` counts"), "{drawn}");
    assert_eq!(warned("10.0.0.0/8\n"), "");
}

#[test]
fn a_list_has_a_bound_with_all_its_files() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("gateway.yaml");
    let write = |name: &str, first: u32, count: u32| {
        let networks = (first..first + count).map(|n| format!("{}\n", Ipv4Addr::from_bits(n)));
        fs::write(folder.path().join(name), networks.collect::<String>()).unwrap();
    };
    let read_with = |names: &[String]| {
        let files: Vec<_> = names.iter().map(|name| format!("{{ file: {name} }}")).collect();
        let text = format!(
            "{FRAME}routes: [{{ name: a, match: {{ path: /a }}, upstream: app, access: {{ deny: [{}] }} }}]\n",
            files.join(", ")
        );
        fs::write(&file, text).unwrap();
        read(&file).map_err(|problems| problems.to_string())
    };
    let names: Vec<String> = (0..17).map(|n| format!("{n}.txt")).collect();
    for name in &names {
        write(name, 0, 1);
    }
    assert!(read_with(&names[..16]).is_ok());
    let drawn = read_with(&names).unwrap_err();
    assert!(drawn.contains("the list names 17 files"), "{drawn}");

    write("0.txt", 0, 60_000);
    write("1.txt", 60_000, 40_000);
    assert!(read_with(&names[..2]).is_ok());
    write("1.txt", 60_000, 40_001);
    let drawn = read_with(&names[..2]).unwrap_err();
    assert!(drawn.contains("the list holds 100001 networks, with those of its files"), "{drawn}");
    assert!(drawn.contains("write at most 100000"), "{drawn}");
}

#[test]
fn a_hundred_thousand_networks_may_be_written_in_a_list() {
    let list = |count: u32| {
        let networks = (0..count).map(|n| Ipv4Addr::from_bits(n * 2).to_string());
        let networks: Vec<_> = networks.collect();
        format!(
            "{FRAME}routes:\n  - {{ name: a, match: {{ path: /a }}, upstream: app, access: {{ deny: [{}] }} }}\n",
            networks.join(", ")
        )
    };
    let plan = plan(&list(100_000));
    let access = plan.routes[0].options.access.as_ref().unwrap();
    assert!(
        !access.allows(address("0.0.0.0"), Located::default())
            && access.allows(address("0.0.0.1"), Located::default())
    );
    assert!(
        !access.allows(address("0.3.13.62"), Located::default())
            && access.allows(address("0.3.13.64"), Located::default())
    );
    messages(&list(100_001), &["`deny` holds 100001 values | write at most 100000"]);
}

#[test]
fn an_override_with_many_networks_has_a_short_name_of_its_own() {
    let file = |first: u32| {
        let networks = (first..first + 1500).map(|n| Ipv4Addr::from_bits(n).to_string());
        let networks: Vec<_> = networks.collect();
        format!(
            "{FRAME}routes:\n  - name: a\n    match: {{ path: /a }}\n    upstream: app\n    flow: [{{ name: r, limit: 1/1s, key: client_ip, overrides: [{{ when: {{ client_ip: [{}] }}, limit: 2/1s }}] }}]\n",
            networks.join(", ")
        )
    };
    let words = |first| {
        let plan = plan(&file(first));
        let when = plan.routes[0].rules.iter().find_map(|rule| rule.when.clone());
        when.expect("an override").words().to_string()
    };
    let one = words(1);
    let other = words(2);
    assert!(one.contains("|0.0.0.8/32|1492 more, ") && one.len() < 200, "{one}");
    assert_ne!(one, other);
}

#[test]
fn networks_that_are_allowed_and_denied_are_found_in_files_too() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("a.txt"), "192.0.2.0/24\n10.1.0.0/16\n").unwrap();
    fs::write(folder.path().join("d.txt"), "10.0.0.0/8\n").unwrap();
    let warned = |access: &str| {
        let text = format!(
            "{FRAME}routes: [{{ name: a, match: {{ path: /a }}, upstream: app, access: {access} }}]\n"
        );
        fs::write(folder.path().join("gateway.yaml"), text).unwrap();
        let plan = read(&folder.path().join("gateway.yaml")).unwrap();
        plan.warnings.list().map(|warning| warning.message).collect::<Vec<_>>()
    };
    let of_file = "`10.1.0.0/16`, line 2 of a.txt, is allowed and denied";
    assert_eq!(warned("{ allow: { file: a.txt }, deny: 10.0.0.0/8 }"), [of_file]);
    assert_eq!(warned("{ allow: { file: a.txt }, deny: { file: d.txt } }"), [of_file]);
    assert_eq!(
        warned("{ allow: [10.2.0.0/16], deny: { file: d.txt } }"),
        ["`10.2.0.0/16` is allowed and denied"]
    );
    assert_eq!(warned("{ allow: { file: d.txt }, deny: 10.1.0.0/16 }"), [""; 0]);
}

#[test]
fn only_addresses_take_a_file() {
    let rule = |when: &str| {
        format!(
            "{FRAME}routes:\n  - name: a\n    match: {{ path: /a }}\n    upstream: app\n    flow: [{{ name: r, limit: 1/1s, overrides: [{{ when: {{ {when} }}, limit: 2/1s }}] }}]\n"
        )
    };
    let only = "only `client_ip` takes a file of networks";
    messages(&rule("method: [GET, { file: a }]"), &[&format!("{only} | write `[some text]`")]);
    messages(
        &rule("'header:x': { file: a }"),
        &[&format!("{only} | write the value of the field, or a list of values")],
    );
    messages(
        &rule("client_ip: { equals: 10.0.0.1 }"),
        &[
            "expected networks, or a file of them | write `[10.0.0.0/8]`, or `{ file: networks.txt }`",
        ],
    );
    warnings(&rule("client_ip: 10.0.0.1, method: [GET, HEAD]"), &[]);
}
