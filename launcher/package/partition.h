#pragma once

// Installed as <strait/partition.h>: all that a partition of your own needs. What it is asked and
// what it answers is in stages/assignment.h, STRAIT_PARTITION in launcher/plugin/plugin.h.
#include "launcher/plugin/plugin.h"
#include "stages/assignment.h"
