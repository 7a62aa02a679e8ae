//! Runs each attack for a few seconds; the program `attack` runs them longer.

use lockwheel_engine::store::serialised::seal_as;
use lockwheel_tests::attack::{Report, arguments, connections, restore, sandbox};
use lockwheel_tests::target::Target;

const SEED: u64 = 2026;

fn assert_withstood(report: &Report) {
    assert!(report.problems.is_empty(), "{}", report.text());
}

#[test]
fn random_arguments_get_the_replies_of_redis() {
    let report = arguments::attack(15_000, SEED, &mut ());
    report.iter().for_each(assert_withstood);
}

#[test]
fn mutated_payloads_are_restored_or_refused_as_by_redis() {
    let report = restore::attack(10_000, SEED, &mut |_, _| {});
    report.iter().for_each(assert_withstood);
}

#[test]
fn no_script_escapes_the_sandbox() {
    assert_withstood(&sandbox::attack(300, SEED, &mut |_, _| {}));
}

#[test]
fn floods_of_connections_leave_no_resources() {
    assert_withstood(&connections::attack(1, SEED));
}

/// Each of these was once restored by Lockwheel and refused by Redis, or the other way round.
#[test]
fn payloads_are_checked_as_redis_checks_them_in_full() {
    const STREAM: &[u8] =
        b"\x0f\x01\x10\0\0\0\0\0\0\0\x05\0\0\0\0\0\0\0\x01\x1d\x1d\0\0\0\x0a\0\x01\
                            \x01\0\x01\x01\x01\x81f\x02\0\x01\x02\x01\0\x01\0\x01\x81v\x02\x04\x01\
                            \xff\x01\x05\x01\0";
    let mut entry_of_another_length = STREAM.to_vec();
    let at = STREAM.len() - 7;
    assert_eq!(entry_of_another_length[at], 4);
    entry_of_another_length[at] = 12;
    let mut another_count = STREAM.to_vec();
    assert_eq!(another_count[24], 10);
    another_count[24] = 9;
    let hides_a_deleted_entry = b"\x0f\x01\x10\0\0\0\0\0\0\0\x05\0\0\0\0\0\0\0\x01\x28\x28\0\0\0\
                                  \x0f\0\x01\x01\0\x01\x01\x01\x81f\x02\0\x01\x03\x01\0\x01\0\
                                  \x01\x81v\x02\x04\x01\x02\x01\0\x01\x01\x01\x81v\x02\x04\x01\
                                  \xff\x01\x05\x02\0";
    let long_value =
        [&b"\x09\x41\x36\x01\x01f\xff\x2c\x01\0\0\0"[..], &[b'v'; 300], b"\xff"].concat();
    let bodies: [(&[u8], bool); 21] = [
        (b"\x0d\x17\x17\0\0\0\x13\0\0\0\x04\0\0\x01f\x03\x01v\x03\x01n\x03\xfeM\xff", true),
        // A ziplist with a wrong offset of its last entry, and one with wrong entry lengths.
        (b"\x0d\x17\x17\0\0\0\x13\0\x40\0\x04\0\0\x01f\x03\x01v\x03\x01n\x03\xfeM\xff", false),
        (b"\x0d\x17\x17\0\0\0\x13\0\0\0\x04\0\0\x01f\x03\x01v\x13\x01n\x03\xfeM\xff", false),
        // A list node with one element of no bytes.
        (b"\x12\x02\x02\x0c\x0c\0\0\0\x02\0\x81a\x02\x07\x01\xff\x01\0", false),
        (b"\x12\x02\x02\x0c\x0c\0\0\0\x02\0\x81a\x02\x07\x01\xff\x01\x01b", true),
        (STREAM, true),
        (&entry_of_another_length, false),
        (&another_count, true),
        (hides_a_deleted_entry, false),
        // A list with an empty ziplist and an offset of its last entry after its end.
        (
            b"\x0e\x02\x10\x10\0\0\0\r\0\0\0\x02\0\0\x01a\x03\xf2\xff\x0b\x0b\0\0\0\n\0\x80\0\0\
              \0\xff",
            false,
        ),
        // Only 254 fields of a zipmap may be any number.
        (b"\x09\x07\xff\x01f\x01\0v\xff", false),
        (b"\x09\x07\xfe\x01f\x01\0v\xff", true),
        // Bytes after the end of a zipmap are not checked, except its last byte; a value with a
        // length that begins as the end marker does.
        (b"\x09\x09\x01\x01f\x01\0v\xffx\xff", true),
        (b"\x09\x09\x01\x01f\x01\0v\xffxx", false),
        (&long_value, true),
        (b"\x09\x0b\x01\x01f\xfe\x01\0\0\0\0v\xff", false),
        (b"\x09\x07\x01\x01f\x02\0v\xff", false),
        // The length of a list element that continues into the element if read backwards.
        (b"\x12\x01\x02\x09\x09\0\0\0\x01\0\0\x81\xff", true),
        // A number with an invalid encoding.
        (b"\x13\0\0\x07\x07\0\0\x07\x87\t\0", true),
        // A number in the encoding of a string, and a compressed text of no length.
        (b"\x01\xc1\x01a", true),
        (b"\0\xc3\x01\0a", true),
    ];
    let targets = Target::all();
    for target in &targets {
        if let Target::Redis(_) = target {
            target.run("CONFIG SET sanitize-dump-payload yes");
        }
        let mut wire = target.connect(2);
        for (body, is_taken) in bodies {
            wire.call(&["DEL", "k"]);
            let payload = seal_as(10, body.to_vec());
            let reply = wire.call(&[&b"RESTORE"[..], b"k", b"0", &payload]);
            let context = format!("{}: {}", target.name(), body.escape_ascii());
            assert_eq!(reply.starts_with(b"+OK"), is_taken, "{context}");
        }
    }
}
