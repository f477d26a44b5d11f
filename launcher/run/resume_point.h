#pragma once

#include "framework/store/checkpoint.h"
#include "launcher/recipe/run_files.h"
#include "launcher/run/loss_history.h"
#include "launcher/run/run_directory.h"
#include "launcher/run/run_launch.h"
#include "launcher/run/run_observer.h"

namespace strait::run {

// Of these checkpoints (newest first, at least one) the one to go on from where the user names
// none: the newest, or, where the losses of its weights were not finite, the newest that is known
// to be good, if there is one. Pure.
store::Step step_to_go_on_from(const std::vector<store::Step>& saved, const LossHistory& losses);

// That step, with a note to `observer`, where it is not the newest.
std::optional<store::Step> good_step_instead(const RunDirectory& directory, const plan::Plan& plan,
                                             const ModelQuestions& model, RunObserver& observer);

// The checkpoint that `resume` goes on from: that of --from STEP, otherwise the newest, with every
// byte compared. Fetches shards that a former launch left on hosts; changes and removes nothing
// else. A newer checkpoint is passed over only if it was never complete or is certainly damaged;
// one that may still be recoverable (a host is down, the disk fails, another build wrote it) needs
// the user's word. UserError, StoreError: there is no such checkpoint, or that word is missing.
//
// `rendezvous`: where hosts join the run by themselves; null: none does.
store::Resumable choose_resume_point(RunDirectory& directory, const plan::RunFile& run,
                                     std::optional<store::Step> from, const ModelQuestions& model,
                                     hosts::Rendezvous* rendezvous, RunObserver& observer);

// What a restart goes on from: the checkpoint of step `from` or, without, the newest that can be
// gone on from without a word of the user. Where part of a newer one was only on `lost` hosts, or
// no host has it any more, `observer` gets a note. nullopt: there is none. UserError, StoreError:
// it cannot be fetched or read now, and another attempt may succeed; `interrupted`: the user ended
// the wait.
std::optional<store::Resumable> restart_point(RunDirectory& directory, const plan::RunFile& run,
                                              std::optional<store::Step> from,
                                              const std::set<std::size_t>& lost,
                                              const ModelQuestions& model,
                                              hosts::Rendezvous* rendezvous, RunObserver& observer);

// Sets what a launch restores from this checkpoint. `options.without` is set already.
void go_on_from(const store::Checkpoint& checkpoint, const plan::Plan& plan,
                LaunchOptions& options);

}  // namespace strait::run
