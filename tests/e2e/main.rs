//! The gateway as a process, over real sockets, as its users meet it.

#![expect(clippy::disallowed_types, reason = "processes and sockets live in real time")]
#![expect(clippy::panic, reason = "a helper's failure is the test's")]
#![expect(clippy::format_push_string, reason = "texts are short here")]
#![expect(clippy::float_cmp, reason = "counters are whole numbers")]

mod common;

mod access;
mod acme;
mod addresses;
mod admin_certificates;
mod admin_listener;
mod balance;
mod bans;
mod binary_upgrade;
mod budgets;
mod certificates;
mod client_certificates;
mod cluster;
mod combined_log;
mod compression;
mod connection_logins;
mod cors;
mod cut_responses;
mod cut_uploads;
mod dashboard;
mod dashboard_troubles;
mod descriptors;
mod divided;
mod docker;
mod duplicates;
mod edit;
mod error_pages;
mod explain;
mod failing_store;
mod files;
#[path = "../usage/fixtures.rs"]
mod fixtures;
mod flood;
mod forward_auth;
mod found_limits;
mod handover;
mod health;
mod hostile_servers;
mod http2_tunnels;
mod idle;
mod import;
mod interim;
mod key_parts;
mod keys;
mod leases;
mod lengths;
mod members;
mod mirror;
mod names;
mod no_response;
mod nodes;
mod operate;
mod other_languages;
mod outages;
mod own_log;
mod partition;
mod paths;
mod plans;
#[path = "../port/mod.rs"]
mod port;
mod ports;
mod preview;
mod proxied;
mod proxy;
mod queue_upgrades;
mod queues;
mod reload;
mod replay;
mod request_ids;
mod requests;
mod retries;
mod retry_after;
mod routes;
mod sent_proxy_header;
mod settlements;
mod shared_settlements;
mod shutdown;
mod sticky;
mod stored_states;
mod stores;
mod synced;
mod throttling;
mod tls;
mod tokens;
mod top;
mod trace_export;
mod trace_parents;
mod tracing;
mod trailers;
mod turns;
mod unix_listeners;
mod unreadable;
mod unwanted;
mod upgrade;
mod upstream_certificates;
mod upstream_http2;
mod upstream_tls;
mod upstreams;
mod usage;
mod waiting;
