//! `tls-ciphers`, `tls-ciphersuites` and `tls-protocols`: from OpenSSL's names to what is
//! supported.

use rustls::crypto::ring::ALL_CIPHER_SUITES;
use rustls::version::{TLS12, TLS13};
use rustls::{CipherSuite, SupportedCipherSuite, SupportedProtocolVersion};

/// OpenSSL's names of the supported suites.
const NAMES: &[(&str, CipherSuite)] = &[
    ("TLS_AES_256_GCM_SHA384", CipherSuite::TLS13_AES_256_GCM_SHA384),
    ("TLS_AES_128_GCM_SHA256", CipherSuite::TLS13_AES_128_GCM_SHA256),
    ("TLS_CHACHA20_POLY1305_SHA256", CipherSuite::TLS13_CHACHA20_POLY1305_SHA256),
    ("ECDHE-ECDSA-AES256-GCM-SHA384", CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384),
    ("ECDHE-ECDSA-AES128-GCM-SHA256", CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256),
    ("ECDHE-ECDSA-CHACHA20-POLY1305", CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256),
    ("ECDHE-RSA-AES256-GCM-SHA384", CipherSuite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384),
    ("ECDHE-RSA-AES128-GCM-SHA256", CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256),
    ("ECDHE-RSA-CHACHA20-POLY1305", CipherSuite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256),
];

/// Words of OpenSSL for groups that contain all supported suites of TLS 1.2.
const ALL: &[&str] = &["DEFAULT", "ALL", "HIGH", "TLSv1.2", "ECDHE", "EECDH", "kECDHE", "kEECDH"];

/// Parts of names for groups that contain some of the supported suites.
const SOME: &[(&str, &str)] = &[
    ("aRSA", "-RSA-"),
    ("aECDSA", "-ECDSA-"),
    ("ECDSA", "-ECDSA-"),
    ("AESGCM", "-GCM-"),
    ("AES", "-AES"),
    ("AES128", "-AES128-"),
    ("AES256", "-AES256-"),
    ("CHACHA20", "-CHACHA20-"),
    ("SHA256", "-SHA256"),
    ("SHA384", "-SHA384"),
];

/// The suites of both directives, in their order.
///
/// # Errors
/// If one of them has a word that is not understood, or leaves no suite.
pub fn suites(ciphers: &str, ciphersuites: &str) -> Result<Vec<SupportedCipherSuite>, String> {
    let of = |is_13: bool| {
        NAMES.iter().map(|(name, _)| *name).filter(move |name| name.starts_with("TLS_") == is_13)
    };
    let mut names: Vec<&str> = match ciphersuites.trim() {
        "" => of(true).collect(),
        list => named_suites(list, &of(true).collect::<Vec<_>>())?,
    };
    names.extend(match ciphers.trim() {
        "" => of(false).collect(),
        list => cipher_list(list, &of(false).collect::<Vec<_>>())?,
    });
    let suite = |name: &str| {
        let (_, id) = NAMES.iter().find(|(known, _)| *known == name)?;
        ALL_CIPHER_SUITES.iter().find(|suite| suite.suite() == *id).copied()
    };
    Ok(names.into_iter().filter_map(suite).collect())
}

/// The suites of a list of names. As in OpenSSL, names of others are skipped if one is left.
fn named_suites(list: &str, known: &[&'static str]) -> Result<Vec<&'static str>, String> {
    let find = |name: &str| known.iter().find(|known| known.eq_ignore_ascii_case(name)).copied();
    let found: Vec<&'static str> = list.split(':').filter_map(|name| find(name.trim())).collect();
    if found.is_empty() {
        let known = known.join(", ");
        return Err(format!("Failed to configure ciphersuites: '{list}' has none of {known}"));
    }
    Ok(found)
}

/// The suites that a cipher list of OpenSSL selects: names and groups, `!` or `-` before those to
/// remove.
fn cipher_list(list: &str, known: &[&'static str]) -> Result<Vec<&'static str>, String> {
    let (mut selected, mut removed): (Vec<&'static str>, Vec<&'static str>) = Default::default();
    for word in list.split([':', ',', ' ']).filter(|word| !word.is_empty()) {
        let (operator, name) = match word.as_bytes()[0] {
            sign @ (b'!' | b'-' | b'+') => (sign, &word[1..]),
            _ => (b' ', word),
        };
        let members: Vec<&'static str> = members(name, known);
        match operator {
            b'!' => removed.extend(&members),
            b'-' => selected.retain(|name| !members.contains(name)),
            // The order decides only between suites of equal strength here.
            b'+' => {}
            _ => {
                for name in members {
                    if !selected.contains(&name) {
                        selected.push(name);
                    }
                }
            }
        }
    }
    selected.retain(|name| !removed.contains(name));
    if selected.is_empty() {
        let known = known.join(", ");
        return Err(format!("Failed to configure ciphers: '{list}' selects none of {known}"));
    }
    Ok(selected)
}

/// The supported members of a group, or the suite of this name. Groups are joined by `+`. Old
/// ciphers are not supported, so their groups have no members.
fn members(name: &str, known: &[&'static str]) -> Vec<&'static str> {
    let has = |suite: &str, group: &str| {
        ALL.contains(&group)
            || suite.eq_ignore_ascii_case(group)
            || SOME.iter().any(|(known, part)| *known == group && suite.contains(part))
    };
    let is_member = |suite: &&'static str| name.split('+').all(|group| has(suite, group));
    known.iter().copied().filter(is_member).collect()
}

/// The versions that `tls-protocols` allows; all supported ones if it is empty.
///
/// # Errors
/// If it has a version that is not supported.
pub fn versions(protocols: &str) -> Result<Vec<&'static SupportedProtocolVersion>, String> {
    let mut versions = Vec::new();
    for name in protocols.split_whitespace() {
        let version = match name.to_ascii_lowercase().as_str() {
            "tlsv1.2" => &TLS12,
            "tlsv1.3" => &TLS13,
            "tlsv1" | "tlsv1.1" => {
                return Err(format!(
                    "Failed to configure tls-protocols: {name} is insecure and not supported by \
                     this server. Use a combination of 'TLSv1.2' and 'TLSv1.3'."
                ));
            }
            _ => {
                return Err(format!(
                    "Unknown tls-protocols specified: {name}. Use a combination of 'TLSv1.2' and \
                     'TLSv1.3'."
                ));
            }
        };
        if !versions.contains(&version) {
            versions.push(version);
        }
    }
    if versions.is_empty() {
        versions = vec![&TLS13, &TLS12];
    }
    Ok(versions)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(ciphers: &str, ciphersuites: &str) -> Result<Vec<&'static str>, String> {
        let suites = suites(ciphers, ciphersuites)?;
        let name = |suite: SupportedCipherSuite| {
            NAMES.iter().find(|(_, id)| *id == suite.suite()).map(|(name, _)| *name)
        };
        Ok(suites.into_iter().filter_map(name).collect())
    }

    #[test]
    fn every_supported_suite_has_a_name() {
        assert_eq!(names("", "").map(|names| names.len()), Ok(ALL_CIPHER_SUITES.len()));
    }

    #[test]
    fn lists_of_openssl_are_understood() {
        let aes_256_rsa = "ECDHE-RSA-AES256-GCM-SHA384";
        for (list, expected) in [
            (aes_256_rsa, vec![aes_256_rsa]),
            ("AES256-SHA:ecdhe-rsa-aes256-gcm-sha384", vec![aes_256_rsa]),
            ("HIGH:!aNULL:!MD5:!AES128:!CHACHA20:!aECDSA", vec![aes_256_rsa]),
            ("ECDHE+AES256:-ECDSA", vec![aes_256_rsa]),
            (
                "aECDSA+CHACHA20:ECDHE-RSA-AES256-GCM-SHA384",
                vec!["ECDHE-ECDSA-CHACHA20-POLY1305", aes_256_rsa],
            ),
        ] {
            let found = names(list, "TLS_AES_128_GCM_SHA256").expect(list);
            assert_eq!(found[0], "TLS_AES_128_GCM_SHA256");
            assert_eq!(found[1..], expected, "{list}");
        }
        for list in ["AES256-SHA", "ALL:!ECDHE", "nonsense", ":"] {
            assert!(names(list, "").is_err(), "{list}");
        }
        assert!(names("", "TLS_AES_128_CCM_SHA256").is_err());
    }

    #[test]
    fn old_versions_are_refused() {
        assert_eq!(versions("").map(|versions| versions.len()), Ok(2));
        assert_eq!(versions("tlsv1.3 TLSv1.3"), Ok(vec![&TLS13]));
        for text in ["TLSv1", "TLSv1.1 TLSv1.2", "SSLv3", "TLSv1.2,TLSv1.3"] {
            assert!(versions(text).is_err(), "{text}");
        }
    }
}
