#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "launcher/hosts/keeper_job.h"

namespace strait::hosts {

// The jobs of all keepers in one text, for a carrier that brings everybody the same: what they have
// in common is in it once. Pure.
std::string pack_jobs(const std::vector<KeeperJob>& jobs);

// The job at `index` of such a text. UserError: it is no such text, or holds no such job.
KeeperJob unpack_job(const std::string& text, std::size_t index);

}  // namespace strait::hosts
