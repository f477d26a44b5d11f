#pragma once

#include <memory>

#include "framework/catalogue.h"
#include "framework/sync/forecast.h"
#include "framework/sync/sync_method.h"
#include "framework/sync/sync_settings.h"

namespace strait::sync {

// Where a recipe states its settings, for messages.
struct RecipeFacts {
  // "run.toml:31:9", or a phrase that says that the recipe does not state the key.
  std::function<std::string(std::string_view key)> where;

  // "sync.every is 3 (run.toml:31:9)".
  std::string stated(std::string_view key, std::string_view value) const;
};

// A method, and everything that the planner must know of it. Only name and make are required.
struct MethodOffer {
  // As recipes call it.
  std::string name;
  // SyncError (setting) if a setting is out of its range.
  std::unique_ptr<SyncMethod> (*make)(const SyncSettings&) = nullptr;
  // The keys of a recipe's [sync] that it reads, without "sync.".
  std::vector<std::string> reads = {};
  // Bits of a value on the wire, for a forecast from the method's plans.
  double wire_bits = 32;
  // What it computes is what a ReplicaGroup computes: a group of all replicas can take its place.
  bool is_exact_sum = false;
  // Its means count contributions by rows (shares_of()), so that replicas may have unequal numbers
  // of rows. Sums of gradients need no weights: each is divided by the tokens of all.
  bool weighs_rows = false;
  // Why its replicas cannot continue without one of them, to follow "it"; empty: they can.
  std::string needs_all = {};

  // Bytes and staleness; slot_bytes is filled in from the method's slots. Null: forecast() counts
  // the bytes of the method's plans.
  Forecast (*forecast)(const ForecastInput&) = nullptr;
  // Null: kPlainCodingCost.
  CodingCost (*coding_cost)(const SyncSettings&) = nullptr;
  // Whether the settings fit together and suit the run: empty, or a sentence that names the keys
  // and says what to change. Null: only `make` checks them.
  std::string (*check)(const SyncSettings&, const RecipeFacts&) = nullptr;
  // The strengths that `auto` chooses from in a run of `steps` steps, weakest first. Null: none.
  std::span<const Strength> (*strengths)(std::int64_t steps) = nullptr;
  // `auto` takes the method of the lowest rank among those whose traffic and coding hide behind the
  // step: exact and fresh updates have low ranks, stale ones high ranks. The default is the last.
  int rank = 1000;
};

// `make` of the offer of a class that is constructed from settings.
template <class Method>
std::unique_ptr<SyncMethod> made(const SyncSettings& settings) {
  return std::make_unique<Method>(settings);
}

// All methods: of this build, which methods.cpp lists, and of plugins.
Catalogue<MethodOffer>& methods();
std::vector<std::string> method_names();

// SyncError (setting) if there is no such method or a setting is out of its range.
std::unique_ptr<SyncMethod> make_method(const SyncSettings& settings);

}  // namespace strait::sync
