/* Trireme: training of large machine-learning models on many MPI ranks. This header includes the whole interface.
 *
 *   status.h      status codes and error messages
 *   base.h        memory, text, time, random numbers
 *   cpu.h         vector instruction levels
 *   context.h     start, roles, end
 *   job.h         settings of the job; job keys of a model class
 *   collective.h  small exchanges among ranks
 *   records.h     rows of files, read in order by one process
 *   data.h        rows of files, read in parallel
 *   table.h       tables and views: parameters
 *   rows.h        rows of tables, pulled while others are processed
 *   function.h    server functions: updates and queries where the parameters are stored
 *   optimizer.h   gradient optimizers
 *   stage.h       stages: iterations of all workers
 *   task.h        sequences of stages with different parallelism
 *   snapshot.h    state of a stage in checkpoints
 *   model.h       model classes and plugins
 *   replica.h     a node's copy of tables
 *   rotation.h    blocks that rotate through a group
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
#include "trireme/optimizer.h"
#include "trireme/records.h"
#include "trireme/replica.h"
#include "trireme/rotation.h"
#include "trireme/rows.h"
#include "trireme/snapshot.h"
#include "trireme/stage.h"
#include "trireme/status.h"
#include "trireme/table.h"
#include "trireme/task.h"

#endif
