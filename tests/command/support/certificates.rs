//! An authority, and certificates of it for one server and one client.

use std::path::PathBuf;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, KeyUsagePurpose};

use super::Place;

/// Makes the files that libnbd, nbdkit and QEMU look for, in a folder of that
/// name. The server is `localhost`.
pub fn certificates(place: &Place, name: &str) -> PathBuf {
    let folder = place.path(name);
    std::fs::create_dir_all(&folder).expect("a folder");
    let write = |file: &str, text: String| {
        std::fs::write(folder.join(file), text).expect("a file");
    };
    let mut authority = CertificateParams::new(Vec::new()).expect("no names");
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let key = KeyPair::generate().expect("a key");
    let certificate = authority.self_signed(&key).expect("an authority");
    write("ca-cert.pem", certificate.pem());
    let issuer = Issuer::new(authority, key);
    for who in ["server", "client"] {
        let names = match who {
            "server" => vec!["localhost".to_string(), "127.0.0.1".to_string()],
            _ => vec!["somebody".to_string()],
        };
        let key = KeyPair::generate().expect("a key");
        let own = CertificateParams::new(names).expect("names");
        let certificate = own.signed_by(&key, &issuer).expect("a certificate");
        write(&format!("{who}-cert.pem"), certificate.pem());
        write(&format!("{who}-key.pem"), key.serialize_pem());
    }
    folder
}
