//! `flowgate import`: from `nginx.conf` to `gateway.yaml`.

use super::{
    auth_request::limit_first,
    client_certificates,
    converted_config::{ConvertedConfig, repair},
    files::Files,
    limits::Zones,
    listeners,
    maps::take_used,
    places::PlaceVariable,
    read::{self, ReadError},
    report::{DROPPED_NAMES, ImportReport, Lines, reason},
    routes::{Routes, Server},
    servers::{hosts, shares},
    settings::settings,
    shared_zones::share,
    single_keys::take_usual,
    template::ServerVariables,
    tree::{Directive, Tree},
    upstreams::Upstreams,
};
use crate::config::{Diagnostics, Text};
use std::{
    fs,
    io::{self, Write},
    path::{self, Path, PathBuf},
};

/// The files to import from and to.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// The configuration of nginx, or `-`, the standard input.
    #[arg(value_name = "FILE")]
    pub input: PathBuf,
    /// Write the result into this file, which must not exist, and not to the standard output.
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// The configuration is a copy: read files with absolute names below this folder, and not from
    /// this machine.
    #[arg(long, value_name = "DIR")]
    pub root: Option<PathBuf>,
}

/// The result of an import.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImportResult {
    /// Every directive is converted exactly.
    Whole,
    /// Some are not, and each of them has been printed.
    Partly,
}

/// The reason why nothing was imported.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// The file cannot be read.
    #[error("cannot read {path}")]
    Read {
        /// Its name.
        path: String,
        /// The cause.
        source: io::Error,
    },
    /// The file is no configuration of nginx.
    #[error("{0}")]
    Fault(String),
    /// There is nothing to convert.
    #[error("{0} has no server that can be converted: the lines above say why")]
    Nothing(String),
    /// The result has errors, which is a mistake of the import.
    #[error("the result has errors, so it is not written:\n{0}")]
    Invalid(Box<Diagnostics>),
    /// The result cannot be written to the file.
    #[error("cannot write {path}")]
    Output {
        /// Its name.
        path: String,
        /// The cause.
        source: io::Error,
    },
    /// The result cannot be printed.
    #[error("cannot write the result")]
    Write(#[from] io::Error),
}

impl From<ReadError> for ImportError {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::File { path, source } => Self::Read { path, source },
            ReadError::Fault { .. } => Self::Fault(error.to_string()),
        }
    }
}

/// Converts the file. The result goes to the file of the options or to `out`, and what is not
/// converted to `err`, a line for each directive.
///
/// # Errors
/// The file cannot be read or has no server, or the result cannot be written.
pub fn run(
    options: &Options,
    out: &mut impl Write,
    err: &mut impl Write,
) -> Result<ImportResult, ImportError> {
    let (tree, report) = read::read(&options.input, options.root.as_deref())?;
    let folder = options.input.parent().unwrap_or_else(|| Path::new(""));
    let folder =
        path::absolute(if folder.as_os_str().is_empty() { Path::new(".") } else { folder });
    let root = options.root.as_deref().map(path::absolute).transpose()?;
    let files = Files { folder: folder?, root };

    let (config, lines) = convert(&tree, &files, report);
    for line in lines.titled() {
        writeln!(err, "{line}")?;
    }
    if config.listeners.is_empty() || config.routes.is_empty() {
        return Err(ImportError::Nothing(options.input.display().to_string()));
    }

    let text = config.write();
    let checked = Text::new(Path::new("gateway.yaml"), &text).rules();
    checked.map_err(|problems| ImportError::Invalid(Box::new(problems)))?;
    match &options.output {
        Some(path) => write_new(path, &text)?,
        None => out.write_all(text.as_bytes())?,
    }
    Ok(if lines.is_empty() { ImportResult::Whole } else { ImportResult::Partly })
}

fn write_new(path: &Path, text: &str) -> Result<(), ImportError> {
    let written = fs::File::create_new(path).and_then(|mut file| file.write_all(text.as_bytes()));
    written.map_err(|source| ImportError::Output { path: path.display().to_string(), source })
}

/// Returns the result, and a line for each directive that is not in it as it was.
pub(super) fn convert(
    tree: &Tree,
    files: &Files,
    mut report: ImportReport,
) -> (ConvertedConfig, Lines) {
    let http = http(tree, &mut report);
    let mut config = converted(tree, &http, files, &mut report);
    take_usual(&tree.directives, &mut report);
    report.note_the_rest(&tree.directives, reason);

    let mut lines = report.lines(tree);
    if !config.upstreams.is_empty() && !names("underscores_in_headers", &http) {
        lines.general.push(DROPPED_NAMES.to_owned());
    }
    let repairs = repair(&mut config);
    lines.blocks.extend(repairs.blocks);
    lines.changes.extend(repairs.changes);

    let name = tree.files.first().map_or("", String::as_str);
    config.comments.push(format!("{name}, converted by `flowgate import`"));
    config.comments.extend(lines.titled());
    (config, lines)
}

/// Returns the block `http`, or the whole file if its servers are in none.
fn http(tree: &Tree, report: &mut ImportReport) -> Directive {
    let found = tree.directives.iter().find(|directive| directive.name == "http");
    if let Some(http) = found {
        report.take(http);
        return http.clone();
    }
    let block = Some(tree.directives.clone());
    Directive { id: usize::MAX, file: 0, line: 1, name: "http".into(), args: Vec::new(), block }
}

/// Reports whether the file or one of its servers has a directive of this name.
fn names(name: &str, http: &Directive) -> bool {
    let blocks = [http].into_iter().chain(http.all("server"));
    blocks.into_iter().any(|block| block.all(name).next().is_some())
}

/// Returns the maps of values.
fn maps<'a>(http: &'a Directive, report: &mut ImportReport) -> Vec<&'a Directive> {
    let inner = http.inner().iter();
    // Behind these proxies, nginx looks up another address than the client's.
    let has_proxies = http.inner().iter().any(|one| one.name.starts_with("geoip2_proxy"));
    let is_map = |one: &&Directive| match one.name.as_str() {
        "map" | "geo" => true,
        "geoip2" => !has_proxies,
        _ => false,
    };
    let maps: Vec<_> = inner.filter(is_map).collect();
    // flowgate writes `Connection` itself.
    for map in maps.iter().filter(|map| map.args == ["$http_upgrade", "$connection_upgrade"]) {
        report.take_all(map);
    }
    maps
}

fn converted(
    tree: &Tree,
    http: &Directive,
    files: &Files,
    report: &mut ImportReport,
) -> ConvertedConfig {
    let servers: Vec<_> = http.all("server").collect();
    let maps = maps(http, report);
    let places = PlaceVariable::all(&maps);
    let zones = Zones::read(http, &maps, report);
    let upstreams = Upstreams::read(http);

    let mut listeners = listeners::read(&servers, report);
    client_certificates::read(&mut listeners, http, &servers, files, report);
    let mut config = ConvertedConfig {
        settings: settings(&tree.directives, http, files, report),
        ..ConvertedConfig::default()
    };
    listeners.retain(|listener| {
        let item = listener.item(http, &servers, files, report);
        let is_usable = item.is_some();
        config.listeners.extend(item);
        is_usable
    });

    let all_hosts: Vec<_> = servers.iter().map(|server| hosts(server, report)).collect();
    let mut routes = Routes {
        http,
        tree,
        files,
        maps: &maps,
        zones,
        upstreams,
        listeners: listeners.len(),
        servers: servers.len(),
        items: Vec::new(),
    };

    for (index, block) in servers.iter().enumerate() {
        report.take(block);
        let shares = shares(index, &all_hosts, &listeners);
        if shares.is_empty() {
            report.note(block, "no request comes to it: it has no address and no name here");
        }

        let usual = format!("server-{}", index + 1);
        let name = all_hosts[index].first().map_or(usual, |host| host.replace('*', "any"));
        for share in shares.iter().flat_map(|share| share.by_scheme(block, &listeners)) {
            let of_share = || listeners.iter().filter(|one| share.listeners.contains(&one.name));
            let beside = of_share().flat_map(|listener| &listener.servers);
            let others = beside.filter(|other| **other != index);
            let others: Vec<_> = others.flat_map(|other| all_hosts[*other].clone()).collect();

            let variables = ServerVariables::new(block, of_share(), &places);
            let server = Server {
                block,
                variables: &variables,
                name: &name,
                share: &share,
                others: &others,
            };
            routes.add(server, report);
        }
    }

    config.routes = routes.items;
    config.upstreams = routes.upstreams.into_items();
    share(&routes.zones, servers.len(), &mut config, report);
    limit_first(&mut config);
    take_used(&maps, http, report);
    config
}
