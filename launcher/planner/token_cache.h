#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "framework/tensors/token_file.h"
#include "launcher/planner/data_preparation.h"

namespace strait::planner {

// Token files that were made before, in $STRAIT_CACHE, else $XDG_CACHE_HOME/strait, else
// ~/.cache/strait, below tokens/. A file's name is the hash of all that decides its content; files
// are written whole or not at all, and hold a hash of their content.

// The place of a source's tokens; empty: there is no cache (no home directory).
std::filesystem::path cache_file(const std::filesystem::path& source, const DataOptions& options,
                                 const std::string& tokenizer_hash);

// The tokens there; null: none, or not whole.
std::shared_ptr<const tensors::TokenFile> read_cache(const std::filesystem::path& file);

// A disk that refuses or is full only costs the next preparation.
void write_cache(const std::filesystem::path& file, const PreparedData& data);

}  // namespace strait::planner
