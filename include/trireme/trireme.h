/* Trireme: training of large machine-learning models on many MPI ranks. This header includes the whole interface.
 *
 *   base.h        status codes and error messages; memory, text, time, random numbers
 *   cpu.h         vector instruction levels
 *   context.h     start, roles, end
 *   job.h         settings of the job; job keys of a model class
 *   collective.h  small exchanges among ranks
 *   records.h     rows of files, read in order by one process
 *   data.h        rows of files, read in parallel
 *   table.h       tables and views: parameters; rows of tables, pulled while others are processed
 *   function.h    functions that servers apply to updates, and queries that they answer; gradient optimizers
 *   stage.h       stages: iterations of all workers; their state in checkpoints; tasks: sequences of stages; rotation of blocks of
 *                 parameters through the workers of a group
 *   model.h       model classes and plugins
 *   replica.h     a node's copy of tables
 *
 * Functions that all ranks must call must be called in the same order on all ranks. A function that any rank may call needs no
 * other rank. «The agreed status» is the same on all ranks: see tr_agree().
 */
#ifndef TRIREME_H
#define TRIREME_H

#include "trireme/base.h"
#include "trireme/collective.h"
#include "trireme/context.h"
#include "trireme/cpu.h"
#include "trireme/data.h"
#include "trireme/function.h"
#include "trireme/job.h"
#include "trireme/model.h"
#include "trireme/records.h"
#include "trireme/replica.h"
#include "trireme/stage.h"
#include "trireme/table.h"

#endif
