//! Lists of networks, the files of them that a configuration names, and warnings about both.
//! Networks are compiled to the IPv4 form in which clients' addresses are compared.

use super::{compiler::Compiler, plan_file::read};
use crate::{
    config::{
        decode::{At, Either, Key},
        diagnostics::{Lint, Problem, SourceSpan, quoted},
        read::source::{self, Files},
        spec::{FileSpec, NetworksSpec, leaf::FileName, values},
    },
    route::{Nat64, NetworkFile, NetworkList, NetworkSet},
};
use ipnet::IpNet;
use std::{
    hash::{DefaultHasher, Hash, Hasher},
    path::Path,
    sync::Arc,
};

/// The most networks of one list, with those of its files.
const MAX_NETWORKS: usize = 100_000;

/// The most networks of all lists, of which each file counts once.
const MAX_IN_ALL: usize = 1_000_000;

/// The most files of one list. A look-up searches each of them.
const MAX_FILES: usize = 16;

/// The most networks whose words are part of an override's identity.
const MAX_WORDS: usize = 1000;

/// The most networks of one list that are reported for the same reason.
pub(super) const MAX_WARNINGS: usize = 20;

/// The hint for a line that is not a network.
const HELP: &str =
    "write one network or address a line, as in `192.0.2.0/24`; what follows a `#` is a comment";

/// A list, and what it is made of.
#[derive(Default)]
pub(super) struct Networks {
    pub(super) list: NetworkList,
    /// The networks of the list itself, as they are written.
    pub(super) own: Vec<At<IpNet>>,
    /// The places where the list names its files.
    pub(super) file_spans: Vec<SourceSpan>,
}

/// A network of a list or of one of its files.
pub(super) struct Part {
    pub(super) network: IpNet,
    /// The place of the network or of its file's name.
    pub(super) span: SourceSpan,
    /// The line in the file, in words.
    pub(super) line: Option<String>,
}

/// The contents of a file of networks.
struct FileContents {
    networks: NetworkSet,
    /// The first line with host bits, and its network.
    host_bits: Option<(u32, IpNet)>,
    /// The number of lines with host bits.
    host_bits_count: usize,
}

impl Networks {
    /// Returns the networks and the files in words.
    pub(super) fn words(&self) -> Vec<String> {
        let mut words: Vec<_> = self.own.iter().map(|at| at.value.to_string()).collect();
        if words.len() > MAX_WORDS {
            let hash = source::hash(&words.join("|"));
            words.truncate(8);
            words.push(format!("{} more, {hash}", self.own.len() - 8));
        }

        words.extend(self.list.files().iter().map(|file| file.path.display().to_string()));
        words
    }

    /// Returns the networks that are not within another one of the list itself or of the same file.
    pub(super) fn parts(&self) -> impl Iterator<Item = Part> {
        let own = self.list.own().widest().filter_map(|(network, place)| {
            let at = self.own.get(usize::try_from(place).ok()?)?;
            Some(Part { network, span: at.span, line: None })
        });
        let files = self.list.files().iter().zip(&self.file_spans);
        let of_files = files.flat_map(|(file, span)| {
            file.networks.widest().map(|(network, line)| Part {
                network,
                span: *span,
                line: Some(format!("line {line} of {}", file.path.display())),
            })
        });
        own.chain(of_files)
    }
}

impl Compiler {
    /// Compiles the prefixes behind which an IPv4 address stands. All networks are read by them, so
    /// this comes first.
    pub(super) fn nat64(&mut self, spec: &FileSpec) -> Nat64 {
        self.nat64 = Nat64::new(spec.nat64.plain(|prefix| prefix.0));
        self.nat64.clone()
    }

    /// Returns a number that differs if networks are read in another way, or files of networks of the
    /// route have changed.
    pub(super) fn address_print(&self) -> u64 {
        hash(&(self.nat64.further(), self.network_print))
    }

    /// Reads the files of networks that `spec` names, each once. They are shown by their names
    /// relative to `folder`.
    pub(super) fn network_files(&mut self, spec: &FileSpec, files: &Files, folder: &Path) {
        let nat64 = self.nat64.clone();
        for named in spec.network_files() {
            if self.network_files.contains_key(&named.value) {
                continue;
            }

            let parse = |text: &str| parse(text, &nat64);
            let contents = read(&named, files, "network file", parse);
            let file = match contents {
                Ok((contents, print)) => {
                    let print = hash(&(print, nat64.further()));
                    let path = named.value.strip_prefix(folder).unwrap_or(&named.value).to_owned();
                    self.host_bits_of_file(&contents, &path, named.span);
                    self.count_networks(contents.networks.count(), named.span);
                    Some(Arc::new(NetworkFile { path, networks: contents.networks, print }))
                }
                Err(problem) => {
                    self.error(problem);
                    None
                }
            };
            self.network_files.insert(named.value, file);
        }
    }

    /// Compiles the list of a key.
    pub(super) fn networks(&mut self, key: &Key<NetworksSpec>) -> Networks {
        let mut own = Vec::new();
        let mut named = Vec::new();
        for at in key.items() {
            match &at.value {
                Either::Plain(network) => {
                    own.push(At { value: network.0, span: at.span, written: true });
                }
                Either::Map(file) => named.push(&file.file),
            }
        }
        self.network_list(&own, &named, key.span.unwrap_or_default())
    }

    /// Compiles trusted proxies, and warns if they are everybody.
    pub(super) fn trusted_proxies(&mut self, key: &Key<NetworksSpec>) -> NetworkList {
        let networks = self.networks(key);
        self.everybody(&networks);
        networks.list
    }

    /// Compiles the list of the key at `span`, of `written` networks and of `named` files.
    pub(super) fn network_list(
        &mut self,
        written: &[At<IpNet>],
        named: &[&Key<FileName>],
        span: SourceSpan,
    ) -> Networks {
        self.host_bits(written);
        let nat64 = self.nat64.clone();
        let canonical = |at: &At<IpNet>| values::canonical(at.value, &nat64);
        let own = written.iter().filter_map(|at| self.keep(canonical(at), at.span));
        let mut networks = Networks { own: own.collect(), ..Networks::default() };

        let mut files: Vec<Arc<NetworkFile>> = Vec::new();
        for at in named.iter().filter_map(|file| file.path()) {
            let Some(Some(file)) = self.network_files.get(&at.value) else { continue };
            self.network_print = hash(&(self.network_print, file.print));
            if !files.iter().any(|known| Arc::ptr_eq(known, file)) {
                files.push(Arc::clone(file));
                networks.file_spans.push(at.span);
            }
        }
        networks.list = NetworkList::new(networks.own.iter().map(|at| at.value), files);

        self.check_size(&networks.list, span);
        self.count_networks(networks.own.len(), span);
        networks
    }

    fn check_size(&mut self, list: &NetworkList, span: SourceSpan) {
        let files = list.files().len();
        if files > MAX_FILES {
            let message = format!("the list names {files} files");
            self.error(Problem::error(span, message).help(format!("name at most {MAX_FILES}")));
        }

        let count = list.count();
        if count > MAX_NETWORKS {
            let message = format!("the list holds {count} networks, with those of its files");
            self.error(Problem::error(span, message).help(format!("write at most {MAX_NETWORKS}")));
        }
    }

    fn count_networks(&mut self, count: usize, span: SourceSpan) {
        let before = self.networks_in_all;
        self.networks_in_all += count;
        if before <= MAX_IN_ALL && self.networks_in_all > MAX_IN_ALL {
            let message = format!("all lists hold more than {MAX_IN_ALL} networks");
            let help = "write a list that several routes use into one file, which counts once";
            self.error(Problem::error(span, message).help(help));
        }
    }

    /// Warns of networks with host bits: they may be meant as one address, and count as networks.
    fn host_bits(&mut self, written: &[At<IpNet>]) {
        let meant = written.iter().filter(|at| at.value.trunc() != at.value);
        for at in meant.take(MAX_WARNINGS) {
            self.warn(host_bits(at.value, at.span, ""));
        }
    }

    /// Warns of the first line of a file that has host bits.
    fn host_bits_of_file(&mut self, contents: &FileContents, path: &Path, span: SourceSpan) {
        let Some((line, network)) = contents.host_bits else { return };
        let path = path.display();
        let place = match contents.host_bits_count {
            1 => format!("line {line} of {path}: "),
            count => format!("line {line} of {path}, the first of {count}: "),
        };
        self.warn(host_bits(network, span, &place));
    }

    /// Warns of trusted proxies that are all addresses of IPv4 or of IPv6, in one network or in
    /// several that together have every address.
    fn everybody(&mut self, networks: &Networks) {
        let written: Vec<IpNet> = networks.parts().map(|part| part.network).collect();
        let all = IpNet::aggregate(&written);
        let is_whole = |is_v4: bool| {
            all.iter().any(|net| net.prefix_len() == 0 && net.addr().is_ipv4() == is_v4)
        };
        let (whole, is_meant): (_, fn(&IpNet) -> bool) = match (is_whole(true), is_whole(false)) {
            (true, true) => ("every address", |_| true),
            (true, false) => ("every IPv4 address", |network| network.addr().is_ipv4()),
            (false, true) => ("every IPv6 address", |network| network.addr().is_ipv6()),
            (false, false) => return,
        };

        // The largest networks are those that it takes.
        let mut parts: Vec<Part> =
            networks.parts().filter(|part| is_meant(&part.network)).collect();
        parts.sort_by_key(|part| part.network.prefix_len());
        let Some((largest, others)) = parts.split_first() else { return };

        let message =
            format!("`trusted_proxies` has {whole}: clients choose which address they have");
        let place = largest.line.as_ref().map(|line| format!("{line}: ")).unwrap_or_default();
        let mut problem = Problem::warning(Lint::TrustsEveryone, largest.span, message)
            .label(format!("{place}any client's `X-Forwarded-For` counts"))
            .help(
                "write only the networks of your own proxies, as in `trusted_proxies: \
                 [10.0.0.0/24]`, or `trusted_proxies: []` if clients connect directly",
            );
        if largest.network.prefix_len() > 0 {
            let mut spans = vec![largest.span];
            for other in others {
                if spans.len() < MAX_WARNINGS && !spans.contains(&other.span) {
                    problem = problem.also(other.span, "together with this");
                    spans.push(other.span);
                }
            }
        }
        self.warn(problem);
    }
}

fn hash(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// Returns the warning of a network with host bits, whose message begins with its `place`.
fn host_bits(network: IpNet, span: SourceSpan, place: &str) -> Problem {
    let whole = network.trunc();
    let message = format!("{place}`{network}` has host bits: flowgate takes it for `{whole}`");
    Problem::warning(Lint::NetworkHostBits, span, message)
        .label(format!("every address of `{whole}`"))
        .help(format!(
            "write `{whole}` for the network, or `{}` for this one address",
            network.addr()
        ))
}

/// Reads a file: a network on each line that is not empty and does not begin with `#`.
fn parse(text: &str, nat64: &Nat64) -> Result<FileContents, (String, &'static str)> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    // A program that writes a file anew empties it first.
    if text.is_empty() {
        let help = "write networks into it, or a comment such as `# none`";
        return Err(("is empty".to_owned(), help));
    }

    let mut networks = Vec::new();
    let mut host_bits = None;
    let mut host_bits_count = 0;
    for (line, written) in (1_u32..).zip(text.lines()) {
        let written = written.split('#').next().unwrap_or_default().trim();
        if written.is_empty() {
            continue;
        }

        let network = values::written_network(written).ok_or_else(|| {
            // The file may be another one, with secrets: only what looks like an address is shown.
            let fits = |c: char| c.is_ascii_hexdigit() || matches!(c, '.' | ':' | '/');
            let shown = if written.chars().all(fits) { quoted(written) } else { "it".to_owned() };
            (format!("cannot be used: line {line}: {shown} is not a network"), HELP)
        })?;
        if network.trunc() != network {
            host_bits = host_bits.or(Some((line, network)));
            host_bits_count += 1;
        }

        let network = values::canonical(network, nat64).map_err(|invalid| {
            let help = "write the IPv4 networks of clients behind NAT64";
            (format!("cannot be used: line {line}: {}", invalid.message), help)
        })?;
        networks.push((network, line));
        if networks.len() > MAX_NETWORKS {
            let message = format!("cannot be used: line {line}: more than {MAX_NETWORKS} networks");
            return Err((message, "write at most so many, or several files"));
        }
    }
    Ok(FileContents { networks: NetworkSet::new(networks), host_bits, host_bits_count })
}
