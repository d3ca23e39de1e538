// Package posixacl knows access control lists as POSIX 1003.1e draft 17 describes them (acl(5)), in the form in which Linux
// passes them as the extended attributes system.posix_acl_access and system.posix_acl_default.
//
// The form: version u32 (2), then entries of 8 bytes {tag u16, perm u16, id u32}, all little-endian. Entries stand in the
// order of their tags; owner, group and others occur once each, and a mask must be there if there are entries for named
// users or groups. All else is ErrInvalid. The functions are pure: they check no permission and know no inode.
package posixacl
