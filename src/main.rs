//! The command line: flags and exit codes.

use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum, error::ErrorKind};
use flowgate::{
    access_log::Output, certs, clock, config, demo, gateway, meter::Counters, replay, scenario,
    shutdown,
};
use std::{
    io::{self, IsTerminal, Write},
    net::SocketAddr,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
};

/// Two thousand instructions fewer per request than the C library's.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// A reverse-proxy gateway with flow control built in.
#[derive(Debug, Parser)]
#[command(name = "flowgate", version, about)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    file: File,
    /// Check the configuration and exit, as `flowgate check` does.
    #[arg(short = 't', long = "test")]
    test: bool,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the gateway (what happens without a command).
    ///
    /// A certificate called `localhost` that is missing is made, for development only.
    Run {
        #[command(flatten)]
        named: Named,
        #[command(flatten)]
        log: Log,
    },
    /// Report everything that is wrong with a configuration, or what it promises.
    ///
    /// Nothing is written: of a certificate called `localhost` that is missing, it is
    /// said that `run` would make it.
    Check(Named),
    /// Run the gateway together with a small upstream to try it on.
    Demo {
        #[command(flatten)]
        named: Named,
        #[command(flatten)]
        log: Log,
        /// Run the upstream alone.
        #[arg(long)]
        upstream_only: bool,
        /// Where the upstream listens. The configuration is not changed by it: write
        /// the same address there, as the `url` of a server.
        #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9000")]
        upstream: SocketAddr,
    },
    /// Run recorded traffic through the rules, on a virtual clock.
    ///
    /// The rules are decided by the gateway's own code; upstreams, certificates and
    /// listeners of the configuration are not used.
    Replay {
        #[command(flatten)]
        file: File,
        #[command(flatten)]
        options: replay::Options,
    },
    /// Run scenarios through the rules, as tests of them.
    ///
    /// Exits with 0 if all pass, and with 101 if one fails, or a scenario or its
    /// configuration has errors. With `-c`, that configuration is tested in place of
    /// those that the scenarios name.
    Test {
        #[command(flatten)]
        file: File,
        #[command(flatten)]
        options: scenario::Options,
    },
    /// Tell what a reload from OLD to NEW would keep, convert and reset.
    ///
    /// Exits with 0 whether they differ or not, and with 1 if one of them has errors.
    /// Certificates are not looked at.
    Diff {
        /// The configuration in force.
        old: PathBuf,
        /// The one to take its place.
        new: PathBuf,
        /// How to print it.
        #[arg(long, value_enum, default_value_t = DiffFormat::Text)]
        output: DiffFormat,
    },
    /// Print the JSON Schema of the configuration, for editors.
    Schema,
    /// Print the reference of the configuration, as Markdown.
    Reference,
}

#[derive(Clone, Debug, Args)]
struct File {
    /// The configuration, `gateway.yaml` if nothing else is named.
    #[arg(short, long = "config", value_name = "FILE", global = true)]
    config: Option<PathBuf>,
}

/// The configuration's name, with `-c` or without.
#[derive(Clone, Debug, Args)]
struct Named {
    /// The same as `-c FILE`.
    #[arg(value_name = "FILE")]
    bare: Option<PathBuf>,
    #[command(flatten)]
    file: File,
}

#[derive(Clone, Copy, Debug, Args)]
struct Log {
    /// How the gateway writes its own log, on the standard error.
    #[arg(long, value_enum, default_value_t = LogFormat::Text)]
    log_format: LogFormat,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum LogFormat {
    /// Lines for people.
    Text,
    /// A JSON object a line, for machines.
    Json,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum DiffFormat {
    /// A summary for people.
    Text,
    /// One JSON object, for machines.
    Json,
}

/// The configuration where none is named.
const DEFAULT_FILE: &str = "gateway.yaml";

impl File {
    fn path(self) -> PathBuf {
        self.config.unwrap_or_else(|| DEFAULT_FILE.into())
    }
}

impl Named {
    fn path(self) -> PathBuf {
        match (self.bare, self.file.config) {
            (Some(_), Some(_)) => Cli::command()
                .error(ErrorKind::ArgumentConflict, "name one FILE, with `-c` or without")
                .exit(),
            (bare, config) => File { config: bare.or(config) }.path(),
        }
    }
}

impl Log {
    /// Starts the log; its last lines are written when it is dropped.
    fn start(self, counters: &Arc<Counters>) -> Result<gateway::Log, Trouble> {
        let is_json = self.log_format == LogFormat::Json;
        gateway::Log::to_stderr(is_json, Arc::clone(counters)).map_err(Trouble::Log)
    }
}

/// What cannot be done, with the cause and what to do about it.
#[derive(Debug, thiserror::Error)]
enum Trouble {
    #[error(
        "the demo's upstream cannot listen on {address}: end what listens there, or name another \
         address with `--upstream` and in the configuration"
    )]
    Upstream { address: SocketAddr, source: io::Error },
    #[error("cannot start the log")]
    Log(#[source] io::Error),
    #[error("cannot write to the standard output")]
    Print(#[source] io::Error),
}

/// Some test failed or could not be read, and has been told of.
#[derive(Debug, thiserror::Error)]
#[error("some tests failed")]
struct TestsFailed;

/// What to try with the committed `gateway.yaml`, whose addresses may have been edited.
const INVITATION: &str = "\
flowgate demo: the gateway on http://WEB, its admin pages on http://ADMIN

  curl http://WEB/anything                     what the upstream receives
  for i in $(seq 30); do curl -s -o /dev/null -w '%{http_code} ' http://WEB/limited; done; echo
  curl -i http://WEB/limited                   RateLimit fields, and Retry-After once refused
  time (for i in $(seq 5); do curl -s -o /dev/null http://WEB/paced & done; wait)
  curl http://ADMIN/routes                       the rules and where they stand

Now edit a limit in gateway.yaml, save, and run the loop again: it is in force at once.
Ctrl-C ends it.
";

/// Problems were found. (Clap itself exits with 2 on wrong usage.)
const PROBLEMS: u8 = 1;

/// What `cargo test` exits with.
const TESTS_FAILED: u8 = 101;

fn main() -> ExitCode {
    let cli = Cli::parse();
    gateway::take_small_pages();
    let done = match cli.command {
        _ if cli.test => check(&cli.file.path()),
        Some(command) => run(command),
        None => run(Command::Run {
            named: Named { bare: None, file: cli.file },
            log: Log { log_format: LogFormat::Text },
        }),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if error.is::<TestsFailed>() => ExitCode::from(TESTS_FAILED),
        Err(error) => {
            complain(&error.to_string(), error.source());
            ExitCode::from(PROBLEMS)
        }
    }
}

fn run(command: Command) -> Result<(), Box<dyn std::error::Error>> {
    match command {
        Command::Run { named, log } => {
            let counters = Arc::default();
            let _log = log.start(&counters)?;
            gateway::run(&named.path(), counters)?;
        }
        Command::Check(named) => check(&named.path())?,
        Command::Demo { named, log, upstream, upstream_only } => {
            let (path, counters) = (named.path(), Arc::default());
            let _log = log.start(&counters)?;
            let upstream = demo::Upstream::start(upstream)
                .map_err(|source| Trouble::Upstream { address: upstream, source })?;
            // It speaks of the addresses and routes of the committed file.
            if !upstream_only && path == Path::new(DEFAULT_FILE) {
                print(&invitation(&path))?;
            }
            tracing::info!(address = %upstream.address(), "the demo's upstream is listening");
            if upstream_only {
                shutdown::wait_for_end()?;
            } else {
                gateway::run(&path, counters)?;
            }
        }
        Command::Replay { file, options } => {
            if let Some(wrong) = options.misuse() {
                Cli::command().error(ErrorKind::ArgumentConflict, wrong).exit();
            }
            let (stdout, mut stderr, mut terminal) =
                (io::stdout().lock(), io::stderr(), io::stderr());
            let terminal: Option<&mut dyn Write> =
                if terminal.is_terminal() { Some(&mut terminal) } else { None };
            unless_closed(replay::run(&options, &file.path(), stdout, &mut stderr, terminal))?;
        }
        Command::Test { file, options } => {
            let (clock, config) = (clock::Clock::start(), file.config.as_deref());
            let (mut stdout, mut stderr) = (io::stdout().lock(), io::stderr());
            if !scenario::run(&options, config, || clock.now(), &mut stdout, &mut stderr)? {
                return Err(Box::new(TestsFailed));
            }
        }
        Command::Diff { old, new, output } => {
            let difference = config::diff(&config::read_rules(&old)?, &config::read_rules(&new)?);
            print(&match output {
                DiffFormat::Text => difference.to_string(),
                DiffFormat::Json => serde_json::to_string_pretty(&difference)?,
            })?;
        }
        Command::Schema => print(&config::schema())?,
        Command::Reference => print(&config::reference())?,
    }
    Ok(())
}

/// Returns what to try with the addresses of the file at `path`. What is wrong with
/// the file is for the gateway to say.
fn invitation(path: &Path) -> String {
    let plan = config::read_rules(path).ok();
    let address = |listener: Option<SocketAddr>, usual: &str| {
        listener.map_or_else(|| usual.to_owned(), |address| address.to_string())
    };
    let web = plan.as_ref().and_then(|plan| plan.listeners.iter().find(|it| it.tls.is_none()));
    let admin = plan.as_ref().and_then(|plan| plan.settings.admin);
    INVITATION
        .replace("WEB", &address(web.map(|listener| listener.address), "127.0.0.1:8080"))
        .replace("ADMIN", &address(admin, "127.0.0.1:9901"))
}

/// Prints what a configuration promises and what is odd about it, and writes no file.
fn check(path: &Path) -> Result<(), Box<dyn std::error::Error>> {
    match config::read(path) {
        Ok(plan) => {
            can_log(&plan)?;
            let warnings = plan.warnings_at(clock::Clock::start().now());
            if !warnings.is_empty() {
                complain(&warnings.to_string(), None);
            }
            Ok(print(&config::describe(&plan))?)
        }
        Err(problems) => match only_development_certificates(path, &problems) {
            Some(note) => {
                can_log(&config::read_rules(path)?)?;
                Ok(print(&note)?)
            }
            None => Err(problems.to_string().into()),
        },
    }
}

/// Looks whether the access log could be opened, and makes no file of it.
fn can_log(plan: &config::Plan) -> Result<(), config::Diagnostics> {
    Output::look(&plan.settings.access_log).map_err(|error| plan.cannot_log(&error))
}

/// Returns what to say if nothing is wrong but that certificates are missing which
/// `run` would make.
fn only_development_certificates(path: &Path, problems: &config::Diagnostics) -> Option<String> {
    let missing: Vec<_> = config::certificate_files(path)
        .into_iter()
        .filter(|(certificate, key)| !certificate.exists() || !key.exists())
        .collect();
    let are_made = missing.iter().all(|(certificate, key)| certs::would_make(certificate, key));
    (problems.are_missing_files() && are_made).then(|| {
        let names = missing.iter().map(|(certificate, _)| certificate.display().to_string());
        format!(
            "No errors. The rules are described here once the certificates are there, which \
             `flowgate run` makes for development:\n  {}",
            names.collect::<Vec<_>>().join("\n  ")
        )
    })
}

/// A closed pipe is the reader's wish.
fn unless_closed(done: Result<(), replay::ReplayError>) -> Result<(), replay::ReplayError> {
    match done {
        Err(replay::ReplayError::Write(error)) if error.kind() == io::ErrorKind::BrokenPipe => {
            Ok(())
        }
        done => done,
    }
}

fn print(text: &str) -> Result<(), Trouble> {
    let mut stdout = io::stdout().lock();
    match writeln!(stdout, "{}", text.trim_end()).and_then(|()| stdout.flush()) {
        // A closed pipe is the reader's wish.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(Trouble::Print(error)),
        _ => Ok(()),
    }
}

fn complain(error: &str, mut source: Option<&dyn std::error::Error>) {
    let mut stderr = io::stderr().lock();
    drop(writeln!(stderr, "{}", error.trim_end()));
    while let Some(cause) = source {
        drop(writeln!(stderr, "  because {cause}"));
        source = cause.source();
    }
}
