/* Writes HDF5 files for test_untrusted.sh. filter.h5: X is packed by a filter that HDF5 must load. Files that refer to others: an array X by external storage, an external link and a
 * virtual dataset; and soft.h5, whose X is a soft link within the file. */
#include <hdf5.h>

static const hsize_t shape[2] = {4, 2};
static const double values[8] = {1, 2, 3, 4, 5, 6, 7, 8};

static hid_t create(const char *path)
{
    return H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
}

static void put(hid_t file, const char *name, hid_t space, hid_t how, int writes)
{
    hid_t set = H5Dcreate2(file, name, H5T_NATIVE_DOUBLE, space, H5P_DEFAULT, how, H5P_DEFAULT);
    if (writes) H5Dwrite(set, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, values);
    H5Dclose(set);
}

static size_t filter(unsigned flags, size_t n, const unsigned values[], size_t bytes, size_t *size,
                     void **buffer)
{
    (void)flags, (void)n, (void)values, (void)size, (void)buffer;
    return bytes;
}

int main(void)
{
    hid_t space = H5Screate_simple(2, shape, NULL), how = H5Pcreate(H5P_DATASET_CREATE), file;
    file = create("source.h5");
    put(file, "X", space, H5P_DEFAULT, 1);
    H5Fclose(file);
    file = create("soft.h5");
    put(file, "v", space, H5P_DEFAULT, 1);
    H5Lcreate_soft("/v", file, "X", H5P_DEFAULT, H5P_DEFAULT);
    H5Fclose(file);
    file = create("link.h5");
    H5Lcreate_external("source.h5", "/X", file, "X", H5P_DEFAULT, H5P_DEFAULT);
    H5Fclose(file);
    const H5Z_class2_t odd = {H5Z_CLASS_T_VERS, 30123, 1, 1, "odd", NULL, NULL, filter};
    H5Zregister(&odd);
    hid_t packed = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_chunk(packed, 2, shape);
    H5Pset_filter(packed, 30123, 0, 0, NULL);
    file = create("filter.h5");
    put(file, "X", space, packed, 1);
    H5Fclose(file);
    H5Pset_external(how, "/etc/passwd", 0, 64);
    file = create("external.h5");
    put(file, "X", space, how, 0);
    H5Fclose(file);
    how = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_virtual(how, space, "source.h5", "X", space);
    file = create("virtual.h5");
    put(file, "X", space, how, 0);
    return H5Fclose(file) < 0;
}
