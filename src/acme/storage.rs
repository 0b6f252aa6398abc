//! The folder of an authority on disk: the account, certificates with their keys, records and challenges.
//!
//! Several gateways may share it. Each file is written beside its place and then renamed, so that no
//! reader ever sees a part. Files have the mode 0600, and folders 0700.

use super::{
    schedule::{Issued, Record},
    x509,
};
use crate::{
    config::{AcmeFolder, AcmeOrder},
    flow::Instant,
};
use instant_acme::AccountCredentials;
use std::{
    fs::{self, DirBuilder, File, OpenOptions, Permissions, TryLockError},
    io::{self, Read, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
};

/// The most bytes of a file that are read.
const MOST_BYTES: u64 = 1 << 20;

/// The age at which a challenge is left over from a process that has crashed, in seconds.
const OLD_CHALLENGE: u64 = 24 * 3600;

/// The kind of a challenge, and the folder of its files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ChallengeKind {
    /// The file of a token has its key authorization.
    Http01,
    /// The file of a name has a certificate and its key.
    TlsAlpn01,
}

impl ChallengeKind {
    const ALL: [Self; 2] = [Self::Http01, Self::TlsAlpn01];

    const fn folder(self) -> &'static str {
        match self {
            Self::Http01 => "http-01",
            Self::TlsAlpn01 => "tls-alpn-01",
        }
    }

    /// Returns the file of a challenge. `name` is a token or the name of a host.
    pub(super) fn file(self, folder: &AcmeFolder, name: &str) -> PathBuf {
        folder.challenges().join(self.folder()).join(name)
    }
}

/// The files of an authority.
#[derive(Clone, Debug)]
pub(super) struct Storage {
    folder: AcmeFolder,
}

/// The right to order a certificate or to create the account, for one process of all that share the folder.
/// The system takes it back when the process ends.
#[derive(Debug)]
pub(super) struct Lock(#[expect(dead_code, reason = "closing the file releases the lock")] File);

/// A challenge that gateways can answer. Dropping it removes its file.
#[derive(Debug)]
pub(super) struct PlacedChallenge(PathBuf);

impl Drop for PlacedChallenge {
    fn drop(&mut self) {
        // One that stays is removed after a day.
        drop(fs::remove_file(&self.0));
    }
}

impl Storage {
    /// Opens the files of an authority, and creates the folders that are missing.
    ///
    /// # Errors
    ///
    /// A folder cannot be created, or is another user's.
    pub(super) fn open(folder: &AcmeFolder) -> io::Result<Self> {
        let storage = Self { folder: folder.clone() };
        if let Some(parent) = folder.storage.parent() {
            fs::create_dir_all(parent)?;
        }
        let challenges = folder.challenges();
        let kinds = ChallengeKind::ALL.map(|kind| challenges.join(kind.folder()));
        let certificates = folder.certificates();
        let own = [folder.storage.clone(), folder.authority.clone(), challenges, certificates];
        for own in own.into_iter().chain(kinds).chain([storage.locks(), storage.records()]) {
            make_private(&own)?;
        }
        Ok(storage)
    }

    fn locks(&self) -> PathBuf {
        self.folder.authority.join("locks")
    }

    fn records(&self) -> PathBuf {
        self.folder.authority.join("records")
    }

    fn account_file(&self) -> PathBuf {
        self.folder.authority.join("account.json")
    }

    fn record_file(&self, order: &AcmeOrder) -> PathBuf {
        let name = order.file.file_stem().unwrap_or_default();
        self.records().join(name).with_added_extension("json")
    }

    /// Takes the lock of a certificate. `None` if another process has it.
    ///
    /// # Errors
    ///
    /// The file of the lock cannot be opened.
    pub(super) fn lock(&self, order: &AcmeOrder) -> io::Result<Option<Lock>> {
        let name = order.file.file_name().unwrap_or_default();
        lock(&self.locks().join(name))
    }

    /// Takes the lock of the account. `None` if another process has it.
    ///
    /// # Errors
    ///
    /// The file of the lock cannot be opened.
    pub(super) fn lock_account(&self) -> io::Result<Option<Lock>> {
        // No certificate has this name.
        lock(&self.locks().join("account"))
    }

    /// Returns the record of a certificate; a new one if there is none that can be read.
    pub(super) fn record(&self, order: &AcmeOrder) -> Record {
        let text = read(&self.record_file(order)).unwrap_or_default();
        serde_json::from_slice(&text).unwrap_or_default()
    }

    /// Writes the record of a certificate.
    ///
    /// # Errors
    ///
    /// The disk is full or cannot be written.
    pub(super) fn write_record(&self, order: &AcmeOrder, record: &Record) -> io::Result<()> {
        write(&self.record_file(order), &serde_json::to_vec(record)?)
    }

    /// Returns the account, if there is one.
    pub(super) fn account(&self) -> Option<AccountCredentials> {
        serde_json::from_slice(&read(&self.account_file()).ok()?).ok()
    }

    /// Writes the account.
    ///
    /// # Errors
    ///
    /// The disk is full or cannot be written.
    pub(super) fn write_account(&self, account: &AccountCredentials) -> io::Result<()> {
        write(&self.account_file(), &serde_json::to_vec(account)?)
    }

    /// Puts away the account, which the authority does not know any more.
    ///
    /// # Errors
    ///
    /// The folder cannot be written.
    pub(super) fn retire_account(&self) -> io::Result<()> {
        let file = self.account_file();
        fs::rename(&file, file.with_extension("json.unknown"))
    }

    /// Writes what a challenge is answered with. `name` is a token or the name of a host.
    ///
    /// # Errors
    ///
    /// The disk is full or cannot be written.
    pub(super) fn place(
        &self,
        kind: ChallengeKind,
        name: &str,
        text: &str,
    ) -> io::Result<PlacedChallenge> {
        let file = kind.file(&self.folder, name);
        write(&file, text.as_bytes())?;
        Ok(PlacedChallenge(file))
    }

    /// Removes challenges that a process has left behind.
    pub(super) fn prune(&self, now: Instant) {
        let now = super::schedule::seconds(now);
        let is_old = |entry: &fs::DirEntry| {
            let modified =
                entry.metadata().ok().and_then(|found| u64::try_from(found.mtime()).ok());
            modified.is_some_and(|modified| modified.saturating_add(OLD_CHALLENGE) < now)
        };
        for kind in ChallengeKind::ALL {
            let folder = self.folder.challenges().join(kind.folder());
            let entries = fs::read_dir(folder).into_iter().flatten().flatten();
            for old in entries.filter(is_old) {
                drop(fs::remove_file(old.path()));
            }
        }
    }
}

/// Returns the certificate of an order, if a valid one is there.
pub(super) fn issued(order: &AcmeOrder) -> Option<Issued> {
    let pem = read(&order.file).ok()?;
    x509::inspect(&pem, &order.names).ok()
}

/// Writes a certificate with its key.
///
/// # Errors
///
/// The disk is full or cannot be written.
pub(super) fn write_issued(order: &AcmeOrder, pem: &str) -> io::Result<()> {
    write(&order.file, pem.as_bytes())
}

/// Creates a folder that its owner alone may use, or takes others' permissions away.
fn make_private(folder: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(folder) {
        Ok(()) => return Ok(()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(error),
    }
    let found = fs::metadata(folder)?;
    if !found.is_dir() {
        return Err(io::ErrorKind::NotADirectory.into());
    }
    if found.permissions().mode() & 0o077 != 0 {
        // What is on a read-only disk, or another user's, stays as it is: the files are private.
        drop(fs::set_permissions(folder, Permissions::from_mode(0o700)));
    }
    Ok(())
}

/// Reads a file of ordinary size.
pub(super) fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let file = File::open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    file.take(MOST_BYTES).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Writes a private file whole or not at all.
fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let folder = path.parent().unwrap_or_else(|| Path::new("."));
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    // Processes in containers may have the same id.
    let name: String = name.chars().take(100).collect();
    let beside = folder.join(format!(".{name}.{:016x}.tmp", fastrand::u64(..)));

    let written = (|| {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&beside)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&beside, path)
    })();
    if written.is_err() {
        drop(fs::remove_file(&beside));
        return written;
    }
    // After a power failure the new name must be there. Not each file system can do this.
    drop(File::open(folder).and_then(|folder| folder.sync_all()));
    Ok(())
}

fn lock(path: &Path) -> io::Result<Option<Lock>> {
    let file =
        OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path)?;
    match file.try_lock() {
        Ok(()) => Ok(Some(Lock(file))),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::acme::schedule::instant;

    fn order(folder: &AcmeFolder, name: &str) -> AcmeOrder {
        AcmeOrder { names: vec![name.to_owned()], file: folder.certificate([name].into_iter()) }
    }

    fn folder(root: &Path) -> AcmeFolder {
        AcmeFolder { storage: root.join("var/acme"), authority: root.join("var/acme/test") }
    }

    fn modes(path: &Path, found: &mut Vec<(PathBuf, u32)>) {
        for entry in fs::read_dir(path).unwrap().flatten() {
            let mode = entry.metadata().unwrap().permissions().mode() & 0o777;
            found.push((entry.path(), mode));
            if entry.path().is_dir() {
                modes(&entry.path(), found);
            }
        }
    }

    #[test]
    fn only_the_owner_may_read_what_is_written() {
        let root = tempfile::tempdir().unwrap();
        let folder = folder(root.path());
        // An administrator has made the folder, readable for all.
        fs::create_dir_all(&folder.storage).unwrap();
        fs::set_permissions(&folder.storage, Permissions::from_mode(0o755)).unwrap();

        let storage = Storage::open(&folder).unwrap();
        let order = order(&folder, "a.example");
        write_issued(&order, "key").unwrap();
        storage.write_record(&order, &Record::default()).unwrap();
        let _lock = storage.lock(&order).unwrap().unwrap();
        let placed = storage.place(ChallengeKind::Http01, "token", "text").unwrap();

        let mut found = Vec::new();
        modes(&root.path().join("var"), &mut found);
        assert!(found.len() > 9, "{found:?}");
        for (path, mode) in found {
            assert_eq!(mode, if path.is_dir() { 0o700 } else { 0o600 }, "{}", path.display());
        }
        drop(placed);
        assert!(!ChallengeKind::Http01.file(&folder, "token").exists());
    }

    #[test]
    fn one_of_all_that_share_the_folder_has_the_lock() {
        let root = tempfile::tempdir().unwrap();
        let folder = folder(root.path());
        let one = Storage::open(&folder).unwrap();
        let other = Storage::open(&folder).unwrap();
        let order = [order(&folder, "a.example"), order(&folder, "b.example")];
        let held = one.lock(&order[0]).unwrap();
        assert!(held.is_some());
        assert!(other.lock(&order[0]).unwrap().is_none());
        assert!(other.lock(&order[1]).unwrap().is_some(), "another certificate's is free");
        drop(held);
        assert!(other.lock(&order[0]).unwrap().is_some());
    }

    #[test]
    fn a_file_that_cannot_be_written_leaves_the_old_one_and_no_other() {
        let root = tempfile::tempdir().unwrap();
        let folder = folder(root.path());
        Storage::open(&folder).unwrap();
        let order = order(&folder, "a.example");
        // A folder in its place cannot be replaced by a file.
        fs::create_dir(&order.file).unwrap();
        assert!(write_issued(&order, "new").is_err());
        assert_eq!(fs::read_dir(folder.certificates()).unwrap().count(), 1);
        assert!(issued(&order).is_none());
    }

    #[test]
    fn what_cannot_be_read_counts_as_missing() {
        let root = tempfile::tempdir().unwrap();
        let folder = folder(root.path());
        let storage = Storage::open(&folder).unwrap();
        let order = order(&folder, "a.example");
        assert_eq!(storage.record(&order), Record::default());
        fs::write(storage.record_file(&order), "{\"failures\": ").unwrap();
        fs::write(storage.account_file(), "[]").unwrap();
        assert_eq!(storage.record(&order), Record::default());
        assert!(storage.account().is_none());
        fs::write(storage.record_file(&order), "{\"failures\": 3, \"new\": 1}").unwrap();
        assert_eq!(storage.record(&order).failures, 3);
    }

    #[test]
    fn old_challenges_are_removed() {
        let root = tempfile::tempdir().unwrap();
        let folder = folder(root.path());
        let storage = Storage::open(&folder).unwrap();
        let placed = storage.place(ChallengeKind::TlsAlpn01, "a.example", "text").unwrap();
        core::mem::forget(placed);
        let file = ChallengeKind::TlsAlpn01.file(&folder, "a.example");
        let written = u64::try_from(fs::metadata(&file).unwrap().mtime()).unwrap();
        storage.prune(instant(written + OLD_CHALLENGE));
        assert!(file.exists());
        storage.prune(instant(written + OLD_CHALLENGE + 1));
        assert!(!file.exists());
    }
}
