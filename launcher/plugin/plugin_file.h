#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "launcher/plan/stage_job.h"
#include "launcher/plugin/plugin.h"

namespace strait::plugin {

// Loads a shared object and lets it offer its parts; one that is loaded already does nothing again.
// It stays for the life of the process. Returns the names of the partitions that it offers.
//
// UserError: the file is not there, cannot be loaded or is no plugin; it is of another ABI version
// (mismatch; both are named); what it offers clashes with what there is; it throws.
//
// At the start of a program, before other threads look names up.
std::vector<std::string> load_plugin(const std::filesystem::path& file);

// Makes the names of all parts known to recipes, and lets this program offer those that are linked
// into it; null: none. UserError as above.
void offer_own_parts(void (*offer)(Extensions&));

// UserError (mismatch) where the content of a copy is not the one that its hash names; else as
// load_plugin().
void load_copies(const std::vector<plan::PluginCopy>& copies);

// In the order given: names may build on each other only backwards.
void load_plugins(const std::vector<std::string>& files);

}  // namespace strait::plugin
