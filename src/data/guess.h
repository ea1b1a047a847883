/* How much the data of a job are, guessed from the beginnings and middles of their files: before they are read, so that there is
 * room for them or the job says that there is none. */
#ifndef TR_DATA_GUESS_H
#define TR_DATA_GUESS_H

#include "job/job.h"
#include "trireme/model.h"

/* Fills in all but workers and servers. Any rank, alone. What files that are not there, or no data, are: as reading them. */
int tr_data_guess(const struct tr_job *job, tr_data_size *size);

#endif
