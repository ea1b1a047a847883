/* Trireme: training large models on many ranks. This header includes the whole public interface.
 *
 *   status.h     codes and how errors travel
 *   base.h       memory, text, time, random numbers
 *   cpu.h        which vector instructions there are
 *   context.h    start, roles, end
 *   job.h        the job's settings by name
 *   collective.h small exchanges among ranks
 *   records.h    records of text, read in order by one process
 *   data.h       records, read in parallel
 *   table.h      tables and views: parameters
 *   rows.h       rows of tables, as they arrive
 *   function.h   what servers do with updates, and answers they compute
 *   optimizer.h  gradient optimizers
 *   stage.h      clocks, groups, running
 *   task.h       stages one after the other
 *   snapshot.h   what a stage keeps in checkpoints
 *   model.h      a class of models: one description
 *   replica.h    a node's own copy of a table
 *   rotation.h   blocks that go round a group
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
#include "trireme/snapshot.h"
#include "trireme/replica.h"
#include "trireme/optimizer.h"
#include "trireme/rotation.h"
#include "trireme/rows.h"
#include "trireme/stage.h"
#include "trireme/status.h"
#include "trireme/table.h"
#include "trireme/task.h"

#endif
