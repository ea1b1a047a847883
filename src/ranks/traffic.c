/* Counts the bytes over all TCP connections of this process, so that a waiting rank can distinguish a slow transfer from a hang. */
#include "ranks/ranks.h"

#include <dirent.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/socket.h>

uint64_t tr_bytes_moved(void)
{
    uint64_t sum = 0;
    DIR *open = opendir("/proc/self/fd");
    for (const struct dirent *entry; open && (entry = readdir(open)) != NULL;) {
        struct tcp_info info = {0};
        socklen_t size = sizeof info;
        if (entry->d_name[0] == '.') continue;
        if (getsockopt(atoi(entry->d_name), IPPROTO_TCP, TCP_INFO, &info, &size) == 0)
            sum += info.tcpi_bytes_acked + info.tcpi_bytes_received;
    }
    if (open) closedir(open);
    return sum;
}
