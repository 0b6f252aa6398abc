//! The command line: flags and exit codes.

use clap::{Args, Parser, Subcommand};
use flowgate::{config, demo, gateway, shutdown};
use std::{io::Write, net::SocketAddr, path::PathBuf, process::ExitCode};

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
    Run(File),
    /// Report everything that is wrong with a configuration, or what it promises.
    Check(File),
    /// Run the gateway together with a small upstream to try it on.
    Demo {
        #[command(flatten)]
        file: File,
        /// Run the upstream alone.
        #[arg(long)]
        upstream_only: bool,
        /// Where the upstream listens.
        #[arg(long, default_value = "127.0.0.1:9000")]
        upstream: SocketAddr,
    },
    /// Print the JSON Schema of the configuration, for editors.
    Schema,
    /// Print the reference of the configuration, as Markdown.
    Reference,
}

#[derive(Clone, Debug, Args)]
struct File {
    /// The configuration.
    #[arg(
        short,
        long = "config",
        value_name = "FILE",
        default_value = "gateway.yaml",
        global = true
    )]
    config: PathBuf,
}

/// What to try with the committed `gateway.yaml`.
const INVITATION: &str = "\
flowgate demo: the gateway on http://127.0.0.1:8080, its admin pages on http://127.0.0.1:9901

  curl http://127.0.0.1:8080/anything                     what the upstream receives
  for i in $(seq 30); do curl -s -o /dev/null -w '%{http_code} ' http://127.0.0.1:8080/limited; done; echo
  curl -i http://127.0.0.1:8080/limited                   RateLimit fields, and Retry-After once refused
  time (for i in $(seq 5); do curl -s -o /dev/null http://127.0.0.1:8080/paced & done; wait)
  curl http://127.0.0.1:9901/routes                       the rules and where they stand

Now edit a limit in gateway.yaml, save, and run the loop again: it is in force at once.
Ctrl-C ends it.
";

/// Problems were found. (Clap itself exits with 2 on wrong usage.)
const PROBLEMS: u8 = 1;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let command = match cli.command {
        _ if cli.test => Command::Check(cli.file),
        Some(command) => command,
        None => Command::Run(cli.file),
    };
    match run(command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&error.to_string(), error.source());
            ExitCode::from(PROBLEMS)
        }
    }
}

fn run(command: Command) -> Result<(), Box<dyn std::error::Error>> {
    match command {
        Command::Run(file) => {
            gateway::log_to_stderr(false);
            gateway::run(&file.config)?;
        }
        Command::Check(file) => check(&file)?,
        Command::Demo { upstream, upstream_only: true, .. } => {
            gateway::log_to_stderr(false);
            let upstream = demo::Upstream::start(upstream)?;
            tracing::info!(address = %upstream.address(), "the demo's upstream is listening");
            shutdown::wait_for_end()?;
        }
        Command::Demo { file, upstream, upstream_only: false } => {
            gateway::log_to_stderr(false);
            let upstream = demo::Upstream::start(upstream)?;
            print(INVITATION);
            tracing::info!(address = %upstream.address(), "the demo's upstream is listening");
            gateway::run(&file.config)?;
        }
        Command::Schema => print(&config::schema()),
        Command::Reference => print(&config::reference()),
    }
    Ok(())
}

/// Prints what a configuration promises.
fn check(file: &File) -> Result<(), Box<dyn std::error::Error>> {
    gateway::make_certificates(&file.config);
    let plan = config::read(&file.config).map_err(|problems| problems.to_string())?;
    print(&config::describe(&plan));
    Ok(())
}

fn print(text: &str) {
    // A closed pipe is the reader's wish.
    drop(writeln!(std::io::stdout().lock(), "{}", text.trim_end()));
}

fn complain(error: &str, mut source: Option<&dyn std::error::Error>) {
    let mut stderr = std::io::stderr().lock();
    drop(writeln!(stderr, "{}", error.trim_end()));
    while let Some(cause) = source {
        drop(writeln!(stderr, "  because {cause}"));
        source = cause.source();
    }
}
