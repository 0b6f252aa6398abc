//! The commands and their exit codes.

use clap::error::ErrorKind;
use flowgate::{
    admin_client::ClientError,
    cli::{
        self, Cli, Command, Format, Log, Named, check, explain, init, live_keys, manual, preview,
    },
    clock, config, demo, docker, gateway, import,
    meter::Counters,
    replay, scenario, shutdown, suggest, top,
};
use std::{
    env,
    io::{self, IsTerminal, Write},
    net::SocketAddr,
    path::Path,
    process::ExitCode,
    sync::Arc,
};

/// Two thousand instructions fewer per request than the C library's.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
enum Failure {
    /// Problems were found and printed: exit code 1.
    #[error("problems were found")]
    Printed,
    /// Something was left out and printed: exit code 3.
    #[error("something is not converted")]
    Partly,
    /// A file has errors: exit code 1.
    #[error("{0}")]
    Problems(String),
    /// The command could not run: exit code 2.
    #[error(transparent)]
    Error(Box<dyn std::error::Error>),
    /// The same, already printed.
    #[error("a file cannot be read")]
    ErrorPrinted,
}

/// Errors with their cause and advice.
#[derive(Debug, thiserror::Error)]
enum CliError {
    #[error(
        "the demo's upstream cannot listen on {address}: end what listens there, or name another \
         address in the configuration, as the `url` of the first server"
    )]
    Upstream { address: SocketAddr, source: io::Error },
    #[error("cannot write the demo's configuration into the folder {}", demo::FOLDER)]
    Copy(#[source] io::Error),
    #[error("cannot find out the current folder")]
    Folder(#[source] io::Error),
    #[error("cannot start the log")]
    Log(#[source] io::Error),
    #[error("cannot write to the standard output")]
    Print(#[source] io::Error),
    #[error("cannot wait for signals")]
    Signals(#[source] io::Error),
    #[error("{0}")]
    File(config::Diagnostics),
}

impl From<CliError> for Failure {
    fn from(error: CliError) -> Self {
        Self::Error(Box::new(error))
    }
}

impl From<config::Diagnostics> for Failure {
    fn from(problems: config::Diagnostics) -> Self {
        if problems.is_unreadable() {
            return CliError::File(problems).into();
        }
        Self::Problems(problems.to_string())
    }
}

impl From<gateway::StartError> for Failure {
    fn from(error: gateway::StartError) -> Self {
        match error {
            gateway::StartError::Config(problems) | gateway::StartError::Open(problems) => {
                problems.into()
            }
            gateway::StartError::System { .. } | gateway::StartError::Upgrade(_) => {
                Self::Error(Box::new(error))
            }
        }
    }
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        if let ClientError::Rejected { text, .. } = error {
            return Self::Problems(text);
        }
        Self::Error(Box::new(error))
    }
}

impl From<explain::ExplainError> for Failure {
    fn from(error: explain::ExplainError) -> Self {
        use explain::ExplainError as Error;
        match error {
            Error::Client(error) => error.into(),
            Error::Header(_) | Error::Io(_) => Self::Error(Box::new(error)),
        }
    }
}

impl From<preview::PreviewError> for Failure {
    fn from(error: preview::PreviewError) -> Self {
        use preview::PreviewError as Error;
        match error {
            Error::Client(error) => error.into(),
            Error::Declined => Self::Problems(error.to_string()),
            Error::Unreadable { .. } | Error::Io(_) => Self::Error(Box::new(error)),
        }
    }
}

impl From<top::TopError> for Failure {
    fn from(error: top::TopError) -> Self {
        match error {
            top::TopError::Client(error) => error.into(),
            top::TopError::Io(_) => Self::Error(Box::new(error)),
        }
    }
}

impl From<init::InitError> for Failure {
    fn from(error: init::InitError) -> Self {
        use init::InitError as Error;
        match error {
            Error::Exists => Self::Problems(error.to_string()),
            Error::Url(_) | Error::Write(..) | Error::Print(_) => Self::Error(Box::new(error)),
        }
    }
}

impl From<import::ImportError> for Failure {
    fn from(error: import::ImportError) -> Self {
        use import::ImportError as Error;
        match error {
            Error::Fault(_) | Error::Nothing(_) | Error::Invalid(_) => {
                Self::Problems(error.to_string())
            }
            Error::Read { .. } | Error::Output { .. } | Error::Write(_) => {
                Self::Error(Box::new(error))
            }
        }
    }
}

impl From<live_keys::KeysError> for Failure {
    fn from(error: live_keys::KeysError) -> Self {
        use live_keys::KeysError as Error;
        match error {
            Error::Client(error) => error.into(),
            Error::Io(_) | Error::Words(_) => Self::Error(Box::new(error)),
        }
    }
}

impl From<replay::ReplayError> for Failure {
    fn from(error: replay::ReplayError) -> Self {
        use replay::ReplayError as Error;
        match error {
            Error::Config(problems) => (*problems).into(),
            Error::BadLines(_) | Error::NoRequest(_) => Self::Problems(error.to_string()),
            Error::Input(_)
            | Error::NoSuchRoute { .. }
            | Error::Traffic(_)
            | Error::Write(_)
            | Error::File { .. } => Self::Error(Box::new(error)),
        }
    }
}

/// Starts the log; dropping it writes its last lines.
fn start_log(log: Log, counters: &Arc<Counters>) -> Result<gateway::Log, CliError> {
    let is_json = log.log_format == Format::Json;
    gateway::Log::to_stderr(is_json, Arc::clone(counters)).map_err(CliError::Log)
}

/// Instructions for the demo.
const INSTRUCTIONS: &str = "\
flowgate demo: the gateway on http://WEB, its admin pages on http://ADMIN
The configuration is FILE (COPY). In another terminal:

  cd FOLDER
  curl http://WEB/anything                     what the upstream receives
  curl -s -o /dev/null -w '%{http_code} ' 'http://WEB/limited?[1-30]'; echo
  curl -i http://WEB/limited                   RateLimit fields, and Retry-After once rejected
  time (for i in $(seq 5); do curl -s -o /dev/null http://WEB/paced & done; wait)
  curl http://ADMIN/routes                       the rules and what is used of each

Now edit a limit in gateway.yaml, save, and run the loop again: the new limit holds at once.
Ctrl-C ends it.
";

/// Exit codes; clap uses 2 for wrong usage.
const PROBLEMS: u8 = 1;
const ERROR: u8 = 2;
const PARTLY: u8 = 3;

fn main() -> ExitCode {
    let cli = Cli::read();
    gateway::take_small_pages();
    let named = Named { bare: cli.bare, file: cli.file };
    let command = cli.command.unwrap_or(if cli.test {
        Command::Check { named, options: CHECK_DEFAULTS }
    } else {
        Command::Run { named, log: Log { log_format: Format::Text }, pid_file: None }
    });
    match run(command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Printed) => ExitCode::from(PROBLEMS),
        Err(Failure::Partly) => ExitCode::from(PARTLY),
        Err(Failure::ErrorPrinted) => ExitCode::from(ERROR),
        Err(Failure::Problems(problems)) => {
            print_error(&problems, None);
            ExitCode::from(PROBLEMS)
        }
        Err(Failure::Error(error)) => {
            print_error(&error.to_string(), error.source());
            ExitCode::from(ERROR)
        }
    }
}

const CHECK_DEFAULTS: cli::CheckOptions =
    cli::CheckOptions { output: Format::Text, deny_warnings: false, without_certificates: false };

fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::Run { named, log, pid_file } => {
            let counters = Arc::default();
            let log = start_log(log, &counters)?;
            Ok(gateway::run(&named.path(), pid_file.as_deref(), &log, counters, || {})?)
        }
        Command::Check { named, options } => check(&named.path(), options),
        Command::Demo { named, log, upstream, upstream_only } => {
            demo(named, log, upstream, upstream_only)
        }
        Command::Init { url } => init(url.as_deref()),
        Command::Replay { file, options } => replay(&options, &file.path()),
        Command::Suggest { file, options } => suggest(&options, &file),
        Command::Import { options } => import(&options),
        Command::Docker { options, log } => {
            let _log = start_log(log, &Arc::default())?;
            docker::run(&options).map_err(|error| Failure::Error(Box::new(error)))
        }
        Command::Test { file, options } => test(&options, file.config.as_deref()),
        Command::Diff { old, new, output } => diff(&old, &new, output),
        Command::Preview { new, file, options } => {
            Ok(preview::preview(&new, &file.path(), &options, &mut io::stdout())?)
        }
        Command::Apply { file, admin } => {
            Ok(preview::apply(&file.path(), &admin, &mut io::stdout())?)
        }
        Command::Top { file, admin, options } => {
            Ok(top::run(&file.path(), &admin, &options, &mut io::stdout())?)
        }
        Command::Explain { file, options } => {
            Ok(explain::explain(&file.path(), &options, &mut io::stdout())?)
        }
        Command::Rejections { file, options } => {
            Ok(explain::rejections(&file.path(), &options, &mut io::stdout())?)
        }
        Command::Keys { file, options } => {
            Ok(live_keys::keys(&file.path(), &options, &mut io::stdout())?)
        }
        Command::Reset { file, options } => {
            Ok(live_keys::reset(&file.path(), &options, &mut io::stdout())?)
        }
        Command::Grant { file, options } => {
            Ok(live_keys::grant(&file.path(), &options, &mut io::stdout())?)
        }
        Command::Schema => Ok(print(&config::schema())?),
        Command::Reference => Ok(print(&config::reference())?),
        Command::Completions { shell } => Ok(print(&manual::completions(shell))?),
        Command::Man { command } => man(command.as_deref()),
    }
}

fn man(command: Option<&str>) -> Result<(), Failure> {
    match manual::page(command).map_err(CliError::Print)? {
        Some(page) => Ok(print(&page)?),
        None => cli::wrong(ErrorKind::InvalidValue, "there is no such command"),
    }
}

fn check(path: &Path, options: cli::CheckOptions) -> Result<(), Failure> {
    let result = check::run(path, options, &mut io::stdout().lock(), &mut io::stderr());
    match unless_closed(result, check::CheckResult::Fine)? {
        check::CheckResult::Fine => Ok(()),
        check::CheckResult::Problems => Err(Failure::Printed),
        check::CheckResult::Unreadable => Err(Failure::ErrorPrinted),
    }
}

fn demo(
    named: Named,
    log: Log,
    address: Option<SocketAddr>,
    is_upstream_only: bool,
) -> Result<(), Failure> {
    let counters = Arc::default();
    let log = start_log(log, &counters)?;
    if is_upstream_only {
        let _upstream = start_upstream(address.unwrap_or(demo::UPSTREAM))?;
        return Ok(shutdown::wait_for_end().map_err(CliError::Signals)?);
    }
    let copy = if named.is_named() {
        None
    } else {
        let copy = demo::prepare(Path::new(demo::FOLDER), &config::schema());
        Some(copy.map_err(CliError::Copy)?)
    };
    let path = copy.as_ref().map_or_else(|| named.path(), |copy| copy.path.clone());
    // The gateway reports errors of the file.
    let plan = config::read_rules(&path).ok();
    let expected = plan.as_ref().and_then(config::Plan::first_loopback_server);
    let _upstream = start_upstream(address.or(expected).unwrap_or(demo::UPSTREAM))?;
    let print_instructions = || {
        if let Some(copy) = &copy
            && let Err(error) = print(&instructions(copy, plan.as_ref()))
        {
            print_error(&error.to_string(), None);
        }
    };
    Ok(gateway::run(&path, None, &log, counters, print_instructions)?)
}

fn init(url: Option<&str>) -> Result<(), Failure> {
    let folder = env::current_dir().map_err(CliError::Folder)?;
    match init::run(url, &folder, &program(), &mut io::stdout().lock()) {
        Err(init::InitError::Url(wrong)) => cli::wrong(ErrorKind::InvalidValue, &wrong),
        Err(init::InitError::Print(error)) if is_closed(&error) => Ok(()),
        done => Ok(done?),
    }
}

/// Returns what starts this program in any terminal: its name if the shell has found it by that, and
/// its path otherwise.
fn program() -> String {
    let name = env::args_os().next().unwrap_or_default();
    let is_found_by_name = !name.is_empty() && Path::new(&name).components().count() == 1;
    let path = || env::current_exe().ok().map(|path| path.display().to_string());
    let path = if is_found_by_name { None } else { path() };
    path.unwrap_or_else(|| "flowgate".to_owned())
}

fn start_upstream(address: SocketAddr) -> Result<demo::Upstream, CliError> {
    let upstream =
        demo::Upstream::start(address).map_err(|source| CliError::Upstream { address, source })?;
    tracing::info!(address = %upstream.address(), "demo upstream listening");
    Ok(upstream)
}

fn replay(options: &replay::Options, config: &Path) -> Result<(), Failure> {
    if let Some(wrong) = options.misuse() {
        cli::wrong(ErrorKind::ArgumentConflict, wrong);
    }
    let stdout = io::stdout().lock();
    let mut stderr = io::stderr();
    let mut terminal = io::stderr();
    let terminal: Option<&mut dyn Write> =
        if terminal.is_terminal() { Some(&mut terminal) } else { None };
    match replay::run(options, config, stdout, &mut stderr, terminal) {
        // The reader may close the pipe early.
        Err(replay::ReplayError::Write(error)) if is_closed(&error) => Ok(()),
        done => Ok(done?),
    }
}

fn suggest(options: &suggest::Options, file: &cli::File) -> Result<(), Failure> {
    if let Some(wrong) = options.misuse() {
        cli::wrong(ErrorKind::ArgumentConflict, wrong);
    }
    let gateway = file.clone().path();
    let files = suggest::Files { routes: file.config.as_deref(), gateway: &gateway };
    match suggest::run(options, files, &mut io::stdout().lock()) {
        Err(suggest::SuggestError::Write(error)) if is_closed(&error) => Ok(()),
        Err(suggest::SuggestError::Config(problems)) => Err((*problems).into()),
        Err(suggest::SuggestError::Client(error)) => Err(error.into()),
        Err(error) => Err(Failure::Error(Box::new(error))),
        Ok(suggest::SuggestResult::Proposed) => Ok(()),
        Ok(suggest::SuggestResult::Nothing) => Err(Failure::Printed),
    }
}

fn import(options: &import::Options) -> Result<(), Failure> {
    match import::run(options, &mut io::stdout().lock(), &mut io::stderr()) {
        Ok(import::ImportResult::Whole) => Ok(()),
        Ok(import::ImportResult::Partly) => Err(Failure::Partly),
        Err(import::ImportError::Write(error)) if is_closed(&error) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn test(options: &scenario::Options, config: Option<&Path>) -> Result<(), Failure> {
    let clock = clock::Clock::start();
    let mut stdout = io::stdout().lock();
    let tested = scenario::run(options, config, || clock.now(), &mut stdout, &mut io::stderr());
    match tested.map_err(|error| Failure::Error(Box::new(error)))? {
        scenario::SuiteResult::Passed => Ok(()),
        scenario::SuiteResult::Failed => Err(Failure::Printed),
        scenario::SuiteResult::Unreadable => Err(Failure::ErrorPrinted),
    }
}

fn diff(old: &Path, new: &Path, output: Format) -> Result<(), Failure> {
    if old == new && old == Path::new(config::STDIN) {
        cli::wrong(ErrorKind::ArgumentConflict, "the standard input, `-`, can be read once");
    }
    // Like diff(1), 1 means that files differ.
    let read = |path| config::Text::read(path)?.rules();
    let old = read(old).map_err(CliError::File)?;
    let new = read(new).map_err(CliError::File)?;
    let difference = config::diff(&old, &new);
    print(&match output {
        Format::Text => difference.to_string(),
        Format::Json => serde_json::to_string_pretty(&difference)
            .map_err(|error| CliError::Print(error.into()))?,
    })?;
    if difference.is_empty() { Ok(()) } else { Err(Failure::Printed) }
}

/// Returns the demo's instructions with its addresses.
fn instructions(copy: &demo::Copy, plan: Option<&config::Plan>) -> String {
    let address = |listener: Option<SocketAddr>, usual: &str| {
        listener.map_or_else(|| usual.to_owned(), |address| address.to_string())
    };
    let web = plan.and_then(|plan| plan.listeners.iter().find(|listener| listener.tls.is_none()));
    let web = web.and_then(|listener| listener.addresses.iter().find_map(|at| at.address.ip()));
    let admin = plan.and_then(|plan| Some(plan.settings.admin.as_ref()?.listen));
    INSTRUCTIONS
        .replace("FILE", &copy.path.display().to_string())
        .replace("COPY", if copy.is_new { "new" } else { "left from an earlier demo" })
        .replace("FOLDER", demo::FOLDER)
        .replace("WEB", &address(web, "127.0.0.1:8080"))
        .replace("ADMIN", &address(admin, "127.0.0.1:9901"))
}

/// Returns `otherwise` if the output's reader has closed the pipe.
fn unless_closed<T>(done: io::Result<T>, otherwise: T) -> Result<T, CliError> {
    match done {
        Err(error) if is_closed(&error) => Ok(otherwise),
        done => done.map_err(CliError::Print),
    }
}

fn is_closed(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::BrokenPipe
}

fn print(text: &str) -> Result<(), CliError> {
    let mut stdout = io::stdout().lock();
    unless_closed(writeln!(stdout, "{}", text.trim_end()).and_then(|()| stdout.flush()), ())
}

fn print_error(error: &str, mut source: Option<&dyn std::error::Error>) {
    let mut stderr = io::stderr().lock();
    drop(writeln!(stderr, "{}", error.trim_end()));
    while let Some(cause) = source {
        drop(writeln!(stderr, "  because {cause}"));
        source = cause.source();
    }
}
