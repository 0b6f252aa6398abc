//! The names of warnings and notes, by which a file can silence them, and where it does.

use super::{Problem, SourceSpan};
use serde::{Serialize, Serializer};
use std::{fmt, ops::Range};

macro_rules! lints {
    ($($(#[$doc:meta])* $variant:ident = $name:literal,)+) => {
        /// The subject of a warning or a note. `docs/checks.md` explains each.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Lint {
            $($(#[$doc])* $variant,)+
        }

        impl Lint {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$variant,)+];

            /// Returns the name that `check` prints and that `# flowgate: allow(NAME)` takes.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)+
                }
            }
        }
    };
}

lints! {
    /// A route that no request can get, because an earlier one takes all of them.
    UnreachableRoute = "unreachable-route",
    /// A regular expression for paths that looks like one for a part of them.
    RegexWithOneAnchor = "regex-with-one-anchor",
    /// A regular expression for paths that begins with another character than `/`.
    RegexWithoutSlash = "regex-without-slash",
    /// A rule beside a stricter one.
    NeverRejects = "never-rejects",
    /// Requests that cost more than the burst, the limit or the concurrency.
    CostAboveLimit = "cost-above-limit",
    /// A cold service that gets less than one request a second, or a window.
    WarmUpBelowFactor = "warm-up-below-factor",
    /// Starts further apart than the longest wait.
    PacingAboveMaxWait = "pacing-above-max-wait",
    /// A sync so rare that a window is over when others hear of it.
    SyncIntervalTooLong = "sync-interval-too-long",
    /// A rule by address behind a proxy that is not trusted.
    NoTrustedProxies = "no-trusted-proxies",
    /// Trusted proxies that are every client.
    TrustsEveryone = "trusts-everyone",
    /// A network that is written with host bits, as in `10.1.2.3/8`.
    NetworkHostBits = "network-host-bits",
    /// A key that clients choose, without a rule by address beside it.
    ClientChosenKey = "client-chosen-key",
    /// A key of paths or hosts that clients choose, without a rule by address beside it.
    ClientChosenTarget = "client-chosen-target",
    /// More for requests with a field that any client can send.
    ClientChosenOverride = "client-chosen-override",
    /// Rules that a client avoids by naming the host of another route.
    BypassedRoute = "bypassed-route",
    /// A file without `end: true`.
    MissingEnd = "missing-end",
    /// A store on another machine, in cleartext.
    StoreWithoutTls = "store-without-tls",
    /// An admin listener that gets its token in cleartext from other machines.
    AdminWithoutTls = "admin-without-tls",
    /// A burst beside which the limit hardly matters.
    BurstOutweighsLimit = "burst-outweighs-limit",
    /// A bucket that passes twice its limit in a long window.
    BurstDoublesLimit = "burst-doubles-limit",
    /// A queue that can never fill.
    QueueNeverFull = "queue-never-full",
    /// A wait that leaves too little time for the answer.
    WaitAboveTimeout = "wait-above-timeout",
    /// A cost by numbers in a response, without one for a response that has none.
    JsonWithoutOtherwise = "json-without-otherwise",
    /// A cost by numbers in responses that may come in an encoding that is not read.
    UnreadableEncoding = "unreadable-encoding",
    /// A rule whose keys may take much memory.
    MuchMemory = "much-memory",
    /// An upstream that no route names.
    UnusedUpstream = "unused-upstream",
    /// A budget that nothing names.
    UnusedBudget = "unused-budget",
    /// A budget that counts by who clients are, beside routes that do not know them.
    BudgetWithoutKey = "budget-without-key",
    /// A server that is a listener of the same file.
    UpstreamIsListener = "upstream-is-listener",
    /// Servers whose certificates are not verified.
    InsecureUpstream = "insecure-upstream",
    /// A key that needs an upstream, in a route without.
    KeyWithoutEffect = "key-without-effect",
    /// A limit of bodies that admits none.
    NoBodies = "no-bodies",
    /// A variable of another gateway in a text that takes placeholders.
    LiteralVariable = "literal-variable",
    /// An `include` that finds no file, or passes over one.
    UnreadFile = "unread-file",
    /// A redirect to where the request came from.
    RedirectLoop = "redirect-loop",
    /// A route that no client may use.
    AccessForNobody = "access-for-nobody",
    /// An address that is allowed and denied.
    AllowedAndDenied = "allowed-and-denied",
    /// A route for a host that no certificate of its listeners names.
    HostWithoutCertificate = "host-without-certificate",
    /// A certificate without a name.
    CertificateWithoutName = "certificate-without-name",
    /// A certificate that is no longer, or not yet, valid.
    CertificateOutOfDate = "certificate-out-of-date",
    /// A name of a certificate by ACME that no route has.
    AcmeNameWithoutRoute = "acme-name-without-route",
    /// Certificates by ACME, and no listener for the challenge HTTP-01.
    AcmeWithoutPlainListener = "acme-without-plain-listener",
    /// An authority without a certificate to get.
    AcmeUnused = "acme-unused",
    /// A name in `allow(…)` that no check has.
    UnknownCheck = "unknown-check",
}

impl Lint {
    /// Returns the check with this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|lint| lint.name() == name)
    }

    /// Reports whether it is about a file as a whole, so that any line of it silences it.
    pub(in crate::config) const fn is_of_whole_file(self) -> bool {
        matches!(self, Self::MissingEnd)
    }
}

impl fmt::Display for Lint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Serialize for Lint {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// The warnings that the comments `# flowgate: allow(NAME)` of a file silence.
#[derive(Clone, Debug, Default)]
pub(in crate::config) struct Allowed {
    pub allows: Vec<Allow>,
    /// Names that no check has.
    pub unknown: Vec<Problem>,
}

/// One name in such a comment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::config) struct Allow {
    pub lint: Lint,
    /// The bytes of the comment's line and, if nothing else is in it, of the next line.
    pub lines: Range<usize>,
    /// The bytes of its file.
    pub file: Range<usize>,
}

impl Allowed {
    /// Reports whether a comment silences this problem.
    pub(in crate::config) fn covers(&self, problem: &Problem) -> bool {
        let Some(lint) = problem.lint else { return false };
        let start = problem.span.map_or(0, |span| span.range().start);
        let alias = problem.span.and_then(SourceSpan::alias).map(|range| range.start);
        self.allows.iter().filter(|allow| allow.lint == lint).any(|allow| {
            if lint.is_of_whole_file() {
                return holds(&allow.file, start);
            }
            holds(&allow.lines, start) || alias.is_some_and(|at| holds(&allow.lines, at))
        })
    }
}

/// True if `at` is in `range`, or at its end, where a file without a last line end has its mark.
fn holds(range: &Range<usize>, at: usize) -> bool {
    range.start <= at && at <= range.end
}
