#include <strait/partition.h>

STRAIT_PARTITION("balanced",
                 [](const strait::partition::Question&) { return strait::partition::Assignment{}; })
