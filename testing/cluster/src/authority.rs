//! The certificate authority of a cluster.

use std::fs;
use std::io::Write;
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    SanType,
};

/// The authority that signs the certificates of one cluster. Its files: `ca.crt`, `ca.key`.
pub(crate) struct Authority {
    dir: PathBuf,
    issuer: Issuer<'static, KeyPair>,
    certificate: String,
}

/// A certificate and its key, as PEM.
pub(crate) struct Credential {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

impl Authority {
    /// Makes a new authority with its files in `dir`.
    pub(crate) fn create(dir: &Path) -> Result<Self> {
        fs::create_dir_all(dir).with_context(|| format!("create {}", dir.display()))?;
        let (params, key) = (params(), KeyPair::generate()?);
        let certificate = params.self_signed(&key)?.pem();
        write(&dir.join("ca.crt"), &certificate)?;
        write(&dir.join("ca.key"), &key.serialize_pem())?;
        Ok(Self { dir: dir.into(), issuer: Issuer::new(params, key), certificate })
    }

    /// Returns the authority whose files are in `dir`.
    pub(crate) fn open(dir: &Path) -> Result<Self> {
        let read = |name: &str| {
            let path = dir.join(name);
            fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))
        };
        let (certificate, key) = (read("ca.crt")?, KeyPair::from_pem(&read("ca.key")?)?);
        Ok(Self { dir: dir.into(), issuer: Issuer::new(params(), key), certificate })
    }

    /// Returns the authority's own certificate, as PEM.
    pub(crate) fn certificate(&self) -> &str {
        &self.certificate
    }

    /// Makes a certificate for a client: `user` and `group` are what the API server reads from it.
    pub(crate) fn client(&self, user: &str, group: &str) -> Result<Credential> {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, user);
        if !group.is_empty() {
            params.distinguished_name.push(DnType::OrganizationName, group);
        }
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.sign(params)
    }

    /// Writes a client certificate as files `NAME.crt` and `NAME.key`.
    pub(crate) fn client_files(&self, name: &str, user: &str, group: &str) -> Result<()> {
        self.write(name, &self.client(user, group)?)
    }

    /// Makes a certificate for a server that clients reach by these names and addresses.
    pub(crate) fn server(&self, name: &str, hosts: &[&str], addresses: &[IpAddr]) -> Result<Credential> {
        let mut params = CertificateParams::new(hosts.iter().map(ToString::to_string).collect::<Vec<_>>())?;
        params.subject_alt_names.extend(addresses.iter().copied().map(SanType::IpAddress));
        params.distinguished_name.push(DnType::CommonName, name);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        self.sign(params)
    }

    /// Writes a server certificate as files `NAME.crt` and `NAME.key`.
    pub(crate) fn server_files(&self, name: &str, hosts: &[&str], addresses: &[IpAddr]) -> Result<()> {
        self.write(name, &self.server(name, hosts, addresses)?)
    }

    /// Makes the key pair that signs the tokens of service accounts: `service-accounts.key` and `service-accounts.pub`.
    pub(crate) fn token_key_files(&self) -> Result<()> {
        let key = KeyPair::generate()?;
        write(&self.dir.join("service-accounts.key"), &key.serialize_pem())?;
        write(&self.dir.join("service-accounts.pub"), &key.public_key_pem())
    }

    fn sign(&self, mut params: CertificateParams) -> Result<Credential> {
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.issuer)?.pem();
        Ok(Credential { certificate, key: key.serialize_pem() })
    }

    fn write(&self, name: &str, credential: &Credential) -> Result<()> {
        write(&self.dir.join(format!("{name}.crt")), &credential.certificate)?;
        write(&self.dir.join(format!("{name}.key")), &credential.key)
    }
}

/// Returns the properties of an authority's own certificate.
fn params() -> CertificateParams {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(DnType::CommonName, "flex-cluster");
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyCertSign];
    params
}

/// Writes a file that only its owner reads.
pub(crate) fn write(path: &Path, text: &str) -> Result<()> {
    fs::File::options()
        .create(true)
        .truncate(true)
        .write(true)
        .mode(0o600)
        .open(path)
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .with_context(|| format!("write {}", path.display()))
}
