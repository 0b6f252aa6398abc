//! The command line as clap reads it: commands, options, and the examples that `--help` shows.
//!
//! Shell completions and manual pages are made of it, by [`manual`].

pub mod check;
pub mod explain;
pub mod init;
pub mod live_keys;
pub mod manual;
mod options;
pub mod preview;

pub use options::{
    CheckOptions, ExplainOptions, File, Format, GrantOptions, KeysOptions, Log, Named,
    PreviewOptions, RejectionsOptions, ResetOptions, TopOptions,
};

use crate::{admin_client::AdminOptions, docker, import, replay, scenario, suggest};
use clap::{Arg, CommandFactory, Parser, Subcommand, error::ErrorKind};
use std::{
    env,
    ffi::OsString,
    net::SocketAddr,
    path::{Path, PathBuf},
};

/// The configuration where none is named.
pub const DEFAULT_FILE: &str = "gateway.yaml";

/// A reverse-proxy gateway with flow control built in.
#[derive(Debug, Parser)]
#[command(name = "flowgate", version, about, after_help = EXAMPLES)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// The configuration to run. Default: `gateway.yaml`.
    #[arg(value_name = "FILE")]
    pub bare: Option<PathBuf>,
    /// The configuration, with `-c`.
    #[command(flatten)]
    pub file: File,
    /// Check the configuration and exit, as `flowgate check` does.
    #[arg(short = 't', long = "test")]
    pub test: bool,
}

/// A command.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the gateway (the default without a command).
    ///
    /// flowgate watches the file and its certificates, and puts every edit without errors in force.
    /// `SIGHUP` makes it read the file again. `SIGUSR2` starts a new process and hands over to it.
    /// `SIGTERM` ends the gateway after the requests in flight. flowgate creates a missing
    /// certificate named `localhost`, for development only.
    #[command(mut_arg("config", |arg| arg.help(SAME_AS_FILE)))]
    #[command(after_help = "\
Examples:
  flowgate run
  flowgate run /etc/flowgate/gateway.yaml --log-format json

Exit codes: 0 ended by a signal; 1 the configuration has errors, or a listener or the access log
cannot be opened; 2 called wrongly, or the file cannot be read.")]
    Run {
        /// The configuration.
        #[command(flatten)]
        named: Named,
        /// The log.
        #[command(flatten)]
        log: Log,
        /// Write the process id into this file. After an upgrade, the file has the id of the new
        /// process.
        #[arg(long, value_name = "PATH")]
        pid_file: Option<PathBuf>,
    },
    /// Report every problem in a configuration, or what it promises.
    ///
    /// FILE may be `-`, the standard input. `check` writes no file. It names the missing
    /// `localhost` certificates that `run` would create.
    #[command(mut_arg("config", |arg| arg.help(SAME_AS_FILE)))]
    #[command(after_help = "\
Examples:
  flowgate check
  flowgate check new.yaml && mv new.yaml gateway.yaml
  git show HEAD:gateway.yaml | flowgate check -
  flowgate check --deny-warnings --output json
  flowgate check --without-certificates

Exit codes: 0 no errors; 1 errors, or warnings and --deny-warnings is set; 2 called wrongly, or
the file cannot be read.")]
    Check {
        /// The configuration.
        #[command(flatten)]
        named: Named,
        /// What to print.
        #[command(flatten)]
        options: CheckOptions,
    },
    /// Run the gateway together with a small upstream, to try it.
    ///
    /// Without FILE, the demo writes `flowgate-demo/gateway.yaml`, a copy to edit, and runs it. It
    /// does not change an existing copy.
    #[command(mut_arg("config", |arg| arg.help(SAME_AS_FILE)))]
    #[command(mut_arg("bare", |arg| arg.help(DEMO_FILE)))]
    #[command(after_help = "\
Examples:
  flowgate demo
  flowgate demo gateway.yaml
  flowgate demo --upstream-only --upstream 127.0.0.1:9001

Exit codes: those of `run`; 2 also if the upstream cannot listen.")]
    Demo {
        /// The configuration.
        #[command(flatten)]
        named: Named,
        /// The log.
        #[command(flatten)]
        log: Log,
        /// Run only the upstream.
        #[arg(long)]
        upstream_only: bool,
        /// The address of the upstream. By default, the address of the first server in the
        /// configuration if it is on loopback, and 127.0.0.1:9000 otherwise.
        #[arg(long, value_name = "ADDRESS")]
        upstream: Option<SocketAddr>,
    },
    /// Write a first `gateway.yaml` for your service into the current folder.
    ///
    /// The file leads every request to the service at URL and limits each client. `init` never
    /// replaces a file. It prints the commands to run next.
    #[command(arg(no_file()))]
    #[command(after_help = "\
Examples:
  flowgate init http://127.0.0.1:3000
  flowgate init unix:/run/app.sock

Exit codes: 0 written; 1 there is a `gateway.yaml` already; 2 called wrongly, or the file cannot be
written.")]
    Init {
        /// The address of the service, as in `http://127.0.0.1:3000`.
        #[arg(value_name = "URL")]
        url: Option<String>,
    },
    /// Run recorded traffic through the rules, on a virtual clock.
    ///
    /// The gateway's own code decides. `replay` does not use the upstreams, certificates and
    /// listeners of the configuration.
    #[command(after_help = "\
Examples:
  flowgate replay access.log
  flowgate replay -c gateway.yaml --against new.yaml access.log.gz
  zcat access.log.*.gz | flowgate replay --html report.html -

Exit codes: 0 done; 1 the configuration has errors, or a line cannot be read and --strict is set;
2 called wrongly, or a file cannot be read or written.")]
    Replay {
        /// The configuration.
        #[command(flatten)]
        file: File,
        /// What to replay.
        #[command(flatten)]
        options: replay::Options,
    },
    /// Suggest limits for recorded or live traffic, as YAML to paste.
    ///
    /// For each route, `suggest` prints the peaks of its clients, a limit with a margin, and what
    /// it would have rejected. Without `-c`, the first segments of paths become routes.
    #[command(mut_arg("config", |arg| arg.help(SUGGEST_FOR)))]
    #[command(after_help = "\
Examples:
  flowgate suggest access.log > gateway.yaml
  flowgate suggest -c gateway.yaml --key header:x-api-key access.log.*.gz
  flowgate suggest --target 0.1% --window 1m access.log
  flowgate suggest -c gateway.yaml --live --for 1h

Exit codes: 0 done; 1 the configuration has errors, the log is too short for any limit, or the
gateway shows no requests; 2 called wrongly, a file cannot be read, or the gateway does not answer.")]
    Suggest {
        /// The configuration.
        #[command(flatten)]
        file: File,
        /// From which traffic.
        #[command(flatten)]
        options: suggest::Options,
    },
    /// Convert an nginx configuration, as far as it converts exactly.
    ///
    /// The result is a `gateway.yaml`. For each reason why directives are not converted, or only
    /// with a difference, `import` prints a line on the standard error, with their files and lines.
    /// It begins with what must be done before the site works.
    #[command(arg(no_file()))]
    #[command(after_help = "\
Examples:
  flowgate import /etc/nginx/nginx.conf > gateway.yaml
  flowgate import nginx.conf --output gateway.yaml && flowgate check gateway.yaml
  flowgate import copy/etc/nginx/nginx.conf --root copy > gateway.yaml

Exit codes: 0 every directive is converted; 1 the file is no configuration of nginx, or has no
server; 2 called wrongly, or a file cannot be read or written; 3 something is not converted.")]
    Import {
        /// What to convert.
        #[command(flatten)]
        options: import::Options,
    },
    /// Write routes for a gateway from the labels of Docker's containers.
    ///
    /// The file is written again whenever containers start or end. The gateway that includes it puts
    /// each change in force, and never sees Docker's socket.
    #[command(arg(no_file()))]
    #[command(after_help = "\
Examples:
  flowgate docker --output /etc/flowgate/docker/routes.yaml
  flowgate docker --once --output routes.yaml --socket /run/user/1000/docker.sock

Exit codes: 0 ended by a signal, or written with --once; 2 called wrongly, or not written with
--once.")]
    Docker {
        /// From which containers, and into which file.
        #[command(flatten)]
        options: docker::Options,
        /// The log.
        #[command(flatten)]
        log: Log,
    },
    /// Run scenarios through the rules, as tests.
    ///
    /// With `-c`, this configuration is tested in place of those that the scenarios name.
    #[command(mut_arg("config", |arg| arg.help(TESTED)))]
    #[command(after_help = "\
Examples:
  flowgate test tests/*.yaml
  flowgate test -c new.yaml scenario.yaml --junit result.xml

Exit codes: 0 all tests pass; 1 a test fails, or a scenario or its configuration has errors;
2 called wrongly, or a file cannot be read or written.")]
    Test {
        /// The configuration.
        #[command(flatten)]
        file: File,
        /// What to test.
        #[command(flatten)]
        options: scenario::Options,
    },
    /// Show what a reload from OLD to NEW would keep, convert and reset.
    ///
    /// OLD or NEW may be `-`, the standard input. `diff` compares only the names of certificates.
    #[command(arg(no_file()))]
    #[command(after_help = "\
Examples:
  flowgate diff /etc/flowgate/gateway.yaml new.yaml
  git show HEAD:gateway.yaml | flowgate diff - gateway.yaml
  flowgate diff old.yaml new.yaml --output json

Exit codes, as those of diff(1): 0 nothing differs; 1 something differs; 2 called wrongly, or a
file cannot be read or has errors.")]
    Diff {
        /// The configuration in force.
        old: PathBuf,
        /// The configuration to replace it.
        new: PathBuf,
        /// How to print it.
        #[arg(long, value_enum, default_value_t = Format::Text)]
        output: Format,
    },
    /// Show what a new file would do with the requests of a running gateway.
    ///
    /// The gateway also decides every request by NEW, with separate state. NEW rejects and delays
    /// no request. The report shows what would change, by rule and by client. The preview ends with
    /// this command, after --for, or when the file in force is edited.
    #[command(mut_arg("config", |arg| arg.help(OF_GATEWAY)))]
    #[command(after_help = "\
Examples:
  flowgate preview new.yaml
  flowgate preview new.yaml --for 10m --output json > report.json
  flowgate preview new.yaml --for 1h --apply

Exit codes: 0 done; 1 NEW has errors, or the gateway cannot apply it; 2 called wrongly, a file
cannot be read, or the gateway does not answer.")]
    Preview {
        /// The new file, or `-`, the standard input.
        new: PathBuf,
        /// The configuration of the gateway.
        #[command(flatten)]
        file: File,
        /// How long, and what then.
        #[command(flatten)]
        options: PreviewOptions,
    },
    /// Put the file of the running preview in force.
    ///
    /// The gateway replaces its configuration by this file and switches to it. New and edited rules
    /// continue with the counts of the preview.
    #[command(mut_arg("config", |arg| arg.help(OF_GATEWAY)))]
    #[command(after_help = "\
Example:
  flowgate apply

Exit codes: 0 done; 1 no preview is running, or its file cannot be put in force; 2 called wrongly,
or the gateway does not answer.")]
    Apply {
        /// The configuration of the gateway.
        #[command(flatten)]
        file: File,
        /// Where the gateway is.
        #[command(flatten)]
        admin: AdminOptions,
    },
    /// Show the state of a running gateway live in a terminal.
    ///
    /// The screen has the routes with their requests per second, latency and rejections, the rules
    /// of one route, the upstreams, and the configuration in force. `?` shows the keys.
    #[command(mut_arg("config", |arg| arg.help(OF_GATEWAY)))]
    #[command(after_help = "\
Examples:
  flowgate top
  flowgate top --admin 127.0.0.1:9901 --filter login
  flowgate top --once

Exit codes: 0 ended by a key or a signal; 2 called wrongly, or the gateway does not answer.")]
    Top {
        /// The configuration of the gateway.
        #[command(flatten)]
        file: File,
        /// Where the gateway is.
        #[command(flatten)]
        admin: AdminOptions,
        /// What is shown.
        #[command(flatten)]
        options: TopOptions,
    },
    /// Show what a running gateway would do with a request, and why.
    ///
    /// The result has the route and why it matches, each rule with its key, usage and decision, and
    /// the server. The gateway sends nothing, and no rule counts the request.
    #[command(mut_arg("config", |arg| arg.help(OF_GATEWAY)))]
    #[command(after_help = "\
Examples:
  flowgate explain /search?q=x
  flowgate explain POST /login --host shop.example.com --from 192.0.2.1
  flowgate explain GET /api -H 'x-tenant: a' --output json

Exit codes: 0 done, whatever the gateway would do; 1 the request cannot be explained; 2 called
wrongly, or the gateway does not answer.")]
    Explain {
        /// The configuration of the gateway.
        #[command(flatten)]
        file: File,
        /// Which request.
        #[command(flatten)]
        options: ExplainOptions,
    },
    /// Show the last 1,000 requests that a running gateway has rejected.
    #[command(mut_arg("config", |arg| arg.help(OF_GATEWAY)))]
    #[command(after_help = "\
Examples:
  flowgate rejections
  flowgate rejections --route login --limit 20
  flowgate rejections --output json --limit 1000

Exit codes: 0 done; 2 called wrongly, or the gateway does not answer.")]
    Rejections {
        /// The configuration of the gateway.
        #[command(flatten)]
        file: File,
        /// Which rejections.
        #[command(flatten)]
        options: RejectionsOptions,
    },
    /// Show the fullest and the most rejected keys of each rule.
    ///
    /// Keys have names if the gateway's file says `admin.show_keys: true`, and fingerprints
    /// otherwise.
    #[command(mut_arg("config", |arg| arg.help(OF_GATEWAY)))]
    #[command(after_help = "\
Examples:
  flowgate keys                       of every rule
  flowgate keys login per-address     of one rule

Exit codes: 0 shown; 1 there is no such route; 2 called wrongly, or the gateway does not answer.")]
    Keys {
        /// The configuration of the gateway.
        #[command(flatten)]
        file: File,
        /// Which keys.
        #[command(flatten)]
        options: KeysOptions,
    },
    /// Give a key its whole budget again.
    ///
    /// The rule then treats the key like a new one. The gateway logs the reset.
    #[command(mut_arg("config", |arg| arg.help(OF_GATEWAY)))]
    #[command(after_help = "\
Examples:
  flowgate reset login per-address 192.0.2.1
  flowgate reset login per-address fp:1f0a…      by fingerprint
  flowgate reset api total all                   of a rule without keys
  flowgate reset login per-address --all         every key

Exit codes: 0 done; 1 the gateway cannot do it, and says why; 2 called wrongly, or the gateway does
not answer.")]
    Reset {
        /// The configuration of the gateway.
        #[command(flatten)]
        file: File,
        /// Which key.
        #[command(flatten)]
        options: ResetOptions,
    },
    /// Give a key more than its limit for some time.
    ///
    /// The rule admits COUNT of what it would reject, and does not count it. The gateway logs the
    /// grant.
    #[command(mut_arg("config", |arg| arg.help(OF_GATEWAY)))]
    #[command(after_help = "\
Example:
  flowgate grant login per-address 192.0.2.1 100 --for 10m

Exit codes: 0 done; 1 the gateway cannot do it, and says why; 2 called wrongly, or the gateway does
not answer.")]
    Grant {
        /// The configuration of the gateway.
        #[command(flatten)]
        file: File,
        /// Which key, and how much more.
        #[command(flatten)]
        options: GrantOptions,
    },
    /// Print the JSON Schema of the configuration, for editors.
    #[command(arg(no_file()))]
    #[command(after_help = "\
Example:
  flowgate schema > gateway.schema.json")]
    Schema,
    /// Print the reference of the configuration, as Markdown.
    #[command(arg(no_file()))]
    #[command(after_help = "\
Example:
  flowgate reference | less")]
    Reference,
    /// Print the completions for a shell.
    #[command(arg(no_file()))]
    #[command(after_help = "\
Examples:
  flowgate completions bash > ~/.local/share/bash-completion/completions/flowgate
  flowgate completions zsh > ~/.zfunc/_flowgate")]
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
    /// Print the manual page of flowgate, or of one of its commands.
    #[command(arg(no_file()))]
    #[command(after_help = "\
Examples:
  flowgate man | man -l -
  flowgate man replay | man -l -")]
    Man {
        /// The command.
        command: Option<String>,
    },
}

/// What `-c` names for a command that also takes FILE.
const SAME_AS_FILE: &str = "The same as FILE";

/// What `-c` names for a command that asks a running gateway.
const OF_GATEWAY: &str =
    "The configuration of the gateway, which names its admin listener. Default: `gateway.yaml`";

/// What `-c` names for `test`.
const TESTED: &str = "The configuration to test, in place of those that the scenarios name";

/// What FILE is for `demo`.
const DEMO_FILE: &str = "The configuration. Default: `flowgate-demo/gateway.yaml`";

/// What `-c` names for `suggest`.
const SUGGEST_FOR: &str = "The configuration whose routes get limits. With `--live`, also that of \
    the gateway, by default `gateway.yaml`";

const EXAMPLES: &str = "\
Examples:
  flowgate demo                     try it, with a small upstream
  flowgate init http://127.0.0.1:3000
                                    write a first gateway.yaml for your service
  flowgate check gateway.yaml       find mistakes, and see what each rule promises
  flowgate gateway.yaml             run the gateway
  flowgate diff gateway.yaml new.yaml
  flowgate COMMAND --help           the options and examples of a command

Exit codes of every command:
  0  done, and nothing is wrong
  1  problems found: an error in a file, a failed test, two files that differ
  2  called wrongly, or a file could not be read or written
  3  import: something is not converted";

impl Command {
    /// Returns whether it takes `-c`.
    const fn reads_file(&self) -> bool {
        match self {
            Self::Run { .. }
            | Self::Check { .. }
            | Self::Demo { .. }
            | Self::Replay { .. }
            | Self::Suggest { .. }
            | Self::Test { .. }
            | Self::Preview { .. }
            | Self::Apply { .. }
            | Self::Top { .. }
            | Self::Explain { .. }
            | Self::Rejections { .. }
            | Self::Keys { .. }
            | Self::Reset { .. }
            | Self::Grant { .. } => true,
            Self::Init { .. }
            | Self::Docker { .. }
            | Self::Import { .. }
            | Self::Diff { .. }
            | Self::Schema
            | Self::Reference
            | Self::Completions { .. }
            | Self::Man { .. } => false,
        }
    }
}

/// Hides `-c`, which every command inherits, in a command that does not take it.
fn no_file() -> Arg {
    Arg::new("config")
        .short('c')
        .long("config")
        .value_name("FILE")
        .value_parser(clap::value_parser!(PathBuf))
        .hide(true)
        .global(true)
}

impl Cli {
    /// Reads the process's arguments. Ends the process with what `--help` and `--version` print, or
    /// with exit code 2 and what is wrong with the arguments.
    pub fn read() -> Self {
        let parsed = Self::try_parse();
        let shows_help = parsed.as_ref().is_err_and(|error| {
            matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion)
        });
        if let Some(word) = env::args_os().nth(1).filter(|_| !shows_help)
            && let Some(message) = mistyped(&word)
        {
            wrong(ErrorKind::InvalidSubcommand, &message);
        }
        let cli = parsed.unwrap_or_else(|error| error.exit());
        if let Some(command) = &cli.command
            && cli.file.config.is_some()
            && !command.reads_file()
        {
            wrong(ErrorKind::ArgumentConflict, "this command reads no `-c` FILE");
        }
        if cli.command.is_some() && cli.bare.is_some() {
            wrong(ErrorKind::ArgumentConflict, "write the command first, then FILE");
        }
        cli
    }
}

/// Ends the process with exit code 2 and `message`.
pub fn wrong(kind: ErrorKind, message: &str) -> ! {
    Cli::command().error(kind, message).exit()
}

/// Returns what to say if the first argument is neither an option, a command nor a file.
fn mistyped(word: &OsString) -> Option<String> {
    let text = word.to_str()?;
    let looks_like_a_file = text.contains(['.', '/']) || Path::new(word).exists();
    let commands = Cli::command();
    let names = || commands.get_subcommands().map(clap::Command::get_name).chain(["help"]);
    if text.starts_with('-') || looks_like_a_file || names().any(|name| name == text) {
        return None;
    }
    let distance = |name: &&str| strsim::damerau_levenshtein(name, text);
    let nearest = names().min_by_key(distance).filter(|name| distance(name) <= 2);
    let tip = nearest.map_or_else(
        || "`flowgate --help` lists the commands".to_owned(),
        |name| format!("did you mean `flowgate {name}`?"),
    );
    Some(format!("there is no command and no file `{}`; {tip}", text.escape_debug()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clap_finds_nothing_wrong_with_the_definition() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_command_has_an_example() {
        for command in Cli::command().get_subcommands() {
            let text = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            let begin = format!("flowgate {}", command.get_name());
            assert!(text.starts_with("Example") && text.contains(&begin), "{begin}: {text}");
        }
    }

    #[test]
    fn a_mistyped_command_is_distinguished_from_a_file() {
        let said = |word: &str| mistyped(&OsString::from(word)).unwrap_or_default();
        assert_eq!(
            said("chekc"),
            "there is no command and no file `chekc`; did you mean `flowgate check`?"
        );
        assert!(said("frobnicate").ends_with("`flowgate --help` lists the commands"));
        for fine in ["check", "help", "-t", "gateway.yaml", "etc/none", "src"] {
            assert_eq!(said(fine), "", "{fine}");
        }
    }
}
