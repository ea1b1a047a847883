/* What reading and writing model.h5 share. */
#ifndef TR_MODEL_H5_PARTS_H
#define TR_MODEL_H5_PARTS_H

#include <hdf5.h>

#include "store/h5.h"

static inline hid_t tr_h5_memory_type(enum tr_h5_type type)
{
    switch (type) {
    case TR_H5_F32: return H5T_NATIVE_FLOAT;
    case TR_H5_F64: return H5T_NATIVE_DOUBLE;
    case TR_H5_I32: return H5T_NATIVE_INT32;
    case TR_H5_I64: return H5T_NATIVE_INT64;
    case TR_H5_U8: return H5T_NATIVE_UINT8;
    case TR_H5_U16: return H5T_NATIVE_UINT16;
    case TR_H5_U32: return H5T_NATIVE_UINT32;
    default: return H5T_NATIVE_UINT64;
    }
}

/* Texts of one length, padded with zeros. */
static inline hid_t tr_h5_text_type(size_t length)
{
    hid_t type = H5Tcopy(H5T_C_S1);
    H5Tset_size(type, length);
    H5Tset_strpad(type, H5T_STR_NULLPAD);
    H5Tset_cset(type, H5T_CSET_UTF8);
    return type;
}

/* The file itself is opened by its name: nobody else knows it, or changes it, and some file systems cannot lock. */
static inline hid_t tr_h5_without_locks(void)
{
    hid_t access = H5Pcreate(H5P_FILE_ACCESS);
    H5Pset_file_locking(access, false, true);
    return access;
}

#endif
