//! The options of commands.

use super::{DEFAULT_FILE, wrong};
use crate::{admin::RouteSort, admin_client::AdminOptions, route::MemberPath};
use clap::{Args, ValueEnum, error::ErrorKind};
use std::{net::IpAddr, path::PathBuf, time::Duration};

/// The configuration, named by `-c`.
#[derive(Clone, Debug, Args)]
pub struct File {
    /// The configuration. Default: `gateway.yaml`.
    #[arg(short, long = "config", value_name = "FILE", global = true)]
    pub config: Option<PathBuf>,
}

/// The configuration, named with `-c` or without.
#[derive(Clone, Debug, Args)]
pub struct Named {
    /// The configuration. Default: `gateway.yaml`.
    #[arg(value_name = "FILE")]
    pub bare: Option<PathBuf>,
    /// The file behind `-c`.
    #[command(flatten)]
    pub file: File,
}

/// What `check` reports, and how.
#[derive(Clone, Copy, Debug, Args)]
pub struct CheckOptions {
    /// How to print problems, and what the rules promise.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub output: Format,
    /// Fail on warnings, too. Notes are not warnings.
    #[arg(long)]
    pub deny_warnings: bool,
    /// Read no certificates and no files of passwords or tokens: they may be missing on this machine.
    #[arg(long)]
    pub without_certificates: bool,
}

/// How a preview runs.
#[derive(Clone, Debug, Args)]
pub struct PreviewOptions {
    /// End after this time, as in `10m`.
    #[arg(long = "for", value_name = "DURATION", value_parser = humantime::parse_duration)]
    pub time: Option<Duration>,
    /// Put NEW in force when the time is over.
    #[arg(long, requires = "time")]
    pub apply: bool,
    /// Begin without asking.
    #[arg(long)]
    pub yes: bool,
    /// Where the gateway is.
    #[command(flatten)]
    pub admin: AdminOptions,
    /// How to print the report.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub output: Format,
}

/// What `top` shows.
#[derive(Clone, Debug, Args)]
pub struct TopOptions {
    /// Print one sample as text, and end. Without a terminal, `top` always does this.
    #[arg(long)]
    pub once: bool,
    /// Which routes come first.
    #[arg(long, value_enum)]
    pub sort: Option<RouteSort>,
    /// Only routes with these words in their name, path, rules or upstream.
    #[arg(long, value_name = "WORDS")]
    pub filter: Option<String>,
}

/// A request to explain.
#[derive(Clone, Debug, Args)]
pub struct ExplainOptions {
    /// The method, and the path with its query. Without a method it is `GET`.
    #[arg(value_name = "[METHOD] PATH", num_args = 1..=2, required = true)]
    pub request: Vec<String>,
    /// A header line, as in `x-tenant: a`. Repeat it for several.
    #[arg(short = 'H', long = "header", value_name = "NAME: VALUE")]
    pub headers: Vec<String>,
    /// A member of the request's JSON body, as in `model=gpt-4` or `options.seed=5`. Repeat it for
    /// several.
    #[arg(long, value_name = "NAME=VALUE", value_parser = member)]
    pub json: Vec<(String, String)>,
    /// The host, if no header line has it.
    #[arg(long)]
    pub host: Option<String>,
    /// The address that the request comes from.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1")]
    pub from: IpAddr,
    /// The listener that receives the request. Default: the first one of the configuration.
    #[arg(long, value_name = "NAME")]
    pub listener: Option<String>,
    /// The subject of the client's certificate, as in `CN=ann,O=Example`.
    #[arg(long, value_name = "NAME")]
    pub client_cert_subject: Option<String>,
    /// The SHA-256 of the client's certificate.
    #[arg(long, value_name = "DIGITS")]
    pub client_cert_fingerprint: Option<String>,
    /// The user that the client has authenticated as.
    #[arg(long, value_name = "NAME")]
    pub user: Option<String>,
    /// The token of the client, which the gateway verifies. A header line may have it instead.
    #[arg(long, value_name = "TOKEN", conflicts_with_all = ["user", "claims"])]
    pub token: Option<String>,
    /// A claim of the client's token, as in `tenant=acme`, without a signature. Repeat it for
    /// several claims, or for the values of a claim that is a list.
    #[arg(long = "claim", value_name = "NAME=VALUE", value_parser = claim)]
    pub claims: Vec<(String, String)>,
    /// Where the gateway is.
    #[command(flatten)]
    pub admin: AdminOptions,
    /// How to print it.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub output: Format,
}

/// Reads `NAME=VALUE`.
fn claim(text: &str) -> Result<(String, String), &'static str> {
    let (name, value) = text.split_once('=').ok_or("write NAME=VALUE, as in tenant=acme")?;
    if name.is_empty() {
        Err("the claim has no name")
    } else {
        Ok((name.to_owned(), value.to_owned()))
    }
}

/// Reads `NAME=VALUE`.
fn member(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("write NAME=VALUE, as in model=gpt-4")?;
    MemberPath::parse(name).map_err(|wrong| format!("{wrong}: {}", wrong.help))?;
    Ok((name.to_owned(), value.to_owned()))
}

/// Which rejections to show.
#[derive(Clone, Debug, Args)]
pub struct RejectionsOptions {
    /// Only rejections of this route.
    #[arg(long, value_name = "NAME")]
    pub route: Option<String>,
    /// Only rejections by this rule, by `breaker` or by `pacing`.
    #[arg(long, value_name = "NAME")]
    pub rule: Option<String>,
    /// How many, the latest first.
    #[arg(long, value_name = "COUNT", default_value_t = 100)]
    pub limit: u16,
    /// Where the gateway is.
    #[command(flatten)]
    pub admin: AdminOptions,
    /// How to print them.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub output: Format,
}

/// Which keys to show.
#[derive(Clone, Debug, Args)]
pub struct KeysOptions {
    /// The route. Default: every route.
    pub route: Option<String>,
    /// The rule. Default: every rule of the route.
    pub rule: Option<String>,
    /// A budget, in place of a route and its rule.
    #[arg(long, conflicts_with_all = ["route", "rule"])]
    pub budget: Option<String>,
    /// How many keys of each kind, at most 20.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u8).range(1..=20))]
    pub top: u8,
    /// Where the gateway is.
    #[command(flatten)]
    pub admin: AdminOptions,
    /// How to print them.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub output: Format,
}

/// Which key to reset.
#[derive(Clone, Debug, Args)]
#[command(
    override_usage = "flowgate reset [OPTIONS] ROUTE RULE KEY\n       flowgate reset [OPTIONS] --budget NAME KEY"
)]
pub struct ResetOptions {
    /// The route and the rule, or `--budget`; then the key as `flowgate keys` shows it, by name or by
    /// fingerprint; `all` for a rule without keys.
    #[arg(value_names = ["ROUTE", "RULE", "KEY"], num_args = 0..=3)]
    pub words: Vec<String>,
    /// A budget, in place of a route and its rule.
    #[arg(long, value_name = "NAME")]
    pub budget: Option<String>,
    /// Every key of the rule.
    #[arg(long)]
    pub all: bool,
    /// Where the gateway is.
    #[command(flatten)]
    pub admin: AdminOptions,
}

/// Which key to give more, how much, and how long.
#[derive(Clone, Debug, Args)]
#[command(
    override_usage = "flowgate grant [OPTIONS] --for DURATION ROUTE RULE KEY COUNT\n       flowgate grant [OPTIONS] --for DURATION --budget NAME KEY COUNT"
)]
pub struct GrantOptions {
    /// The route and the rule, or `--budget`; then the key as `flowgate keys` shows it, by name or by
    /// fingerprint; `all` for a rule without keys. At the end, the cost that the rule admits beyond its
    /// limit: requests, if each costs 1.
    #[arg(value_names = ["ROUTE", "RULE", "KEY", "COUNT"], num_args = 2..=4)]
    pub words: Vec<String>,
    /// A budget, in place of a route and its rule.
    #[arg(long, value_name = "NAME")]
    pub budget: Option<String>,
    /// For how long, at most a day.
    #[arg(long = "for", value_name = "DURATION", value_parser = humantime::parse_duration)]
    pub time: Duration,
    /// Where the gateway is.
    #[command(flatten)]
    pub admin: AdminOptions,
}

/// How the gateway writes its own log.
#[derive(Clone, Copy, Debug, Args)]
pub struct Log {
    /// How the gateway writes its own log, on the standard error.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub log_format: Format,
}

/// The format of an output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people.
    Text,
    /// For programs.
    Json,
}

impl File {
    /// Returns the file that is named, or the default.
    pub fn path(self) -> PathBuf {
        self.config.unwrap_or_else(|| DEFAULT_FILE.into())
    }
}

impl Named {
    /// Returns whether a file is named.
    pub const fn is_named(&self) -> bool {
        self.bare.is_some() || self.file.config.is_some()
    }

    /// Returns the file that is named once, with `-c` or without, or the default. Ends the process
    /// with exit code 2 if two are named.
    pub fn path(self) -> PathBuf {
        match (self.bare, self.file.config) {
            (Some(_), Some(_)) => {
                wrong(ErrorKind::ArgumentConflict, "name one FILE, with `-c` or without")
            }
            (bare, config) => File { config: bare.or(config) }.path(),
        }
    }
}
