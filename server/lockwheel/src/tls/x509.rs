//! Reads the few fields of a certificate that decide what it may be used for, and nothing else:
//! signatures, names and dates are checked by webpki.

/// The tags of ASN.1 that are needed.
const BOOLEAN: u8 = 0x01;
const OCTET_STRING: u8 = 0x04;
const OBJECT_IDENTIFIER: u8 = 0x06;
const SEQUENCE: u8 = 0x30;
const VERSION: u8 = 0xA0;
const EXTENSIONS: u8 = 0xA3;

/// `id-ce-basicConstraints`
const BASIC_CONSTRAINTS: &[u8] = &[0x55, 0x1D, 0x13];

/// The fields of a certificate.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outline<'a> {
    /// Version, which is not present in version 1.
    version: Option<&'a [u8]>,
    issuer: &'a [u8],
    subject: &'a [u8],
    extensions: Option<&'a [u8]>,
}

impl<'a> Outline<'a> {
    /// The fields of a certificate in DER; none if it is malformed.
    pub(super) fn of(certificate: &'a [u8]) -> Option<Outline<'a>> {
        let mut certificate = Reader(certificate).expect(SEQUENCE)?;
        let mut fields = certificate.expect(SEQUENCE)?;
        let version = fields.optional(VERSION).map(|version| version.0);
        let (_serial, _algorithm) = (fields.next()?, fields.expect(SEQUENCE)?);
        let issuer = fields.expect(SEQUENCE)?.0;
        let _dates = fields.expect(SEQUENCE)?;
        let subject = fields.expect(SEQUENCE)?.0;
        let mut extensions = None;
        while let Some((tag, value)) = fields.next() {
            if tag == EXTENSIONS {
                extensions = Some(Reader(value).expect(SEQUENCE)?.0);
            }
        }
        Some(Outline { version, issuer, subject, extensions })
    }

    /// Whether the certificate has version 1.
    pub(super) fn is_version_1(&self) -> bool {
        self.version.is_none()
    }

    /// Whether issuer and subject are the same.
    pub(super) fn is_self_issued(&self) -> bool {
        self.issuer == self.subject
    }

    /// Whether its owner may issue certificates: the owner of one of version 1, which cannot say
    /// so, or one whose basic constraints do.
    pub(super) fn may_issue(&self) -> bool {
        self.is_version_1() || self.has_constraint_of_authority().unwrap_or(false)
    }

    fn has_constraint_of_authority(&self) -> Option<bool> {
        let mut extensions = Reader(self.extensions?);
        loop {
            let mut extension = extensions.expect(SEQUENCE)?;
            if extension.expect(OBJECT_IDENTIFIER)?.0 == BASIC_CONSTRAINTS {
                let _is_critical = extension.optional(BOOLEAN);
                let mut value = extension.expect(OCTET_STRING)?.expect(SEQUENCE)?;
                return Some(value.optional(BOOLEAN).is_some_and(|it| it.0 != [0]));
            }
        }
    }
}

/// The rest of a sequence of elements in DER.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// The tag and the content of the next element.
    fn next(&mut self) -> Option<(u8, &'a [u8])> {
        let (&tag, rest) = self.0.split_first()?;
        let (&first, rest) = rest.split_first()?;
        let (length, rest) = match first {
            ..0x80 => (usize::from(first), rest),
            _ => {
                // A certificate has less than four gigabytes.
                let (bytes, rest) = rest.split_at_checked(usize::from(first & 0x7F))?;
                let length = bytes.iter().try_fold(0_u32, |length, &byte| {
                    Some(length.checked_mul(256)? | u32::from(byte))
                })?;
                (usize::try_from(length).ok()?, rest)
            }
        };
        let (content, rest) = rest.split_at_checked(length)?;
        self.0 = rest;
        Some((tag, content))
    }

    /// The content of the next element, which must have this tag.
    fn expect(&mut self, tag: u8) -> Option<Reader<'a>> {
        self.next().filter(|(found, _)| *found == tag).map(|(_, content)| Reader(content))
    }

    /// As `expect`, for an element that may be missing.
    fn optional(&mut self, tag: u8) -> Option<Reader<'a>> {
        if self.0.first() == Some(&tag) { self.expect(tag) } else { None }
    }
}
