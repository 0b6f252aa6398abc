//! Lists of networks, and the files of networks that they name.

use super::{
    ConditionSpec, RouteSpec, RuleSpec,
    keys::keys,
    leaf::{FileName, Network, Text},
};
use crate::config::{
    decode::{At, Either, Entries, Key, Many},
    diagnostics::Source,
};

/// A list of networks, of which a file may have more.
pub(in crate::config) type NetworksSpec = Many<Either<Network, NetworkFileSpec>>;

keys! {
    /// An entry of a list of addresses and networks.
    #[example = "{ file: networks.txt }"]
    struct NetworkFileSpec: "a file of networks" {
        /// A file with one network or address a line; what follows a `#` is a comment. flowgate
        /// watches the file and reloads it like this file.
        #[example = "networks.txt"]
        file: FileName;
    }
}

/// A value of an override's `when`: texts or files of networks, or a field's pattern.
pub(in crate::config) type ConditionValue =
    Either<Many<Either<Text, NetworkFileSpec>>, ConditionSpec>;

/// Returns the files that a list names.
pub(super) fn files_of(list: &Key<NetworksSpec>) -> impl Iterator<Item = &Key<FileName>> {
    list.items().iter().filter_map(|at| file_of(&at.value))
}

/// Returns the files that a list names, to change them.
pub(super) fn files_of_mut(
    list: &mut Key<NetworksSpec>,
) -> impl Iterator<Item = &mut Key<FileName>> {
    let items = list.at.iter_mut().flat_map(|at| &mut at.value.0.0);
    items.filter_map(|at| file_of_mut(&mut at.value))
}

fn file_of<P>(entry: &Either<P, NetworkFileSpec>) -> Option<&Key<FileName>> {
    match entry {
        Either::Plain(_) => None,
        Either::Map(spec) => Some(&spec.file),
    }
}

fn file_of_mut<P>(entry: &mut Either<P, NetworkFileSpec>) -> Option<&mut Key<FileName>> {
    match entry {
        Either::Plain(_) => None,
        Either::Map(spec) => Some(&mut spec.file),
    }
}

fn files_of_when(when: &Key<ConditionValue>) -> Vec<&Key<FileName>> {
    match &when.at {
        None => Vec::new(),
        Some(At { value: Either::Map(spec), .. }) => vec![&spec.file],
        Some(At { value: Either::Plain(list), .. }) => {
            list.0.0.iter().filter_map(|at| file_of(&at.value)).collect()
        }
    }
}

fn files_of_when_mut(when: &mut Key<ConditionValue>) -> Vec<&mut Key<FileName>> {
    match &mut when.at {
        None => Vec::new(),
        Some(At { value: Either::Map(spec), .. }) => vec![&mut spec.file],
        Some(At { value: Either::Plain(list), .. }) => {
            list.0.0.iter_mut().filter_map(|at| file_of_mut(&mut at.value)).collect()
        }
    }
}

impl RouteSpec {
    /// Returns the files of networks that the route names.
    pub(super) fn network_files(&self) -> Vec<&Key<FileName>> {
        let access = self.access.value().into_iter();
        let access = access.flat_map(|access| [&access.allow, &access.deny]).flat_map(files_of);
        let rules = self.flow.items().iter().flat_map(|at| at.value.network_files());
        access.chain(rules).collect()
    }

    /// Resolves the relative names of these files from the folder of the file that they stand in.
    pub(super) fn resolve_files(&mut self, source: &Source) {
        let access = self.access.at.iter_mut().map(|at| &mut at.value);
        let lists = access.flat_map(|access| [&mut access.allow, &mut access.deny]);
        lists.flat_map(files_of_mut).for_each(|file| file.resolve(source));
        for rule in self.flow.at.iter_mut().flat_map(|at| &mut at.value.0) {
            rule.value.resolve_files(source);
        }
    }
}

impl RuleSpec {
    pub(super) fn network_files(&self) -> Vec<&Key<FileName>> {
        let except = self.except.value().into_iter();
        let except = except.flat_map(|except| files_of(&except.client_ip));
        let whens = self.overrides.items().iter().filter_map(|at| at.value.when.value());
        let conditions = whens.flat_map(|Entries(entries)| entries);
        // Any other condition with a file is an error.
        let conditions = conditions.filter(|(name, _)| name.value.0 == "client_ip");
        except.chain(conditions.flat_map(|(_, when)| files_of_when(when))).collect()
    }

    pub(super) fn resolve_files(&mut self, source: &Source) {
        self.resolve_plans(source);
        if let Some(except) = &mut self.except.at {
            files_of_mut(&mut except.value.client_ip).for_each(|file| file.resolve(source));
        }
        let overrides = self.overrides.at.iter_mut().flat_map(|at| &mut at.value.0);
        let whens = overrides.filter_map(|at| at.value.when.at.as_mut());
        for (_, when) in whens.flat_map(|at| &mut at.value.0) {
            for file in files_of_when_mut(when) {
                file.resolve(source);
            }
        }
    }
}
