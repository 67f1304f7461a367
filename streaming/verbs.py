"""``stream deploy | upgrade | rollback | status | savepoint | stop | sql``."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from schemas.cli import Result, say, step, verb
from schemas.errors import BeforehandError
from schemas.locations import address
from schemas.plan import Plan, load_plan
from streaming import resume, sql
from streaming import upgrade as replacing
from streaming.flink import Flink, Job
from streaming.report import lines, report

WAIT_S = 120.0


def add_verbs(verbs: Any) -> None:
    """Add ``stream`` with its verbs."""
    about = "the Flink job that keeps every user's window of the last events"
    example = "example:\n  ./beforehand stream deploy"
    plain = argparse.RawDescriptionHelpFormatter
    stream = verbs.add_parser("stream", help=about, description=about, epilog=example, formatter_class=plain)
    subs = stream.add_subparsers(dest="subverb", required=True, metavar="VERB")

    sub = verb(subs, "deploy", deploy, "submit the windows job and wait until it runs", "stream deploy")
    _cluster(sub)
    _plan(sub)
    sub.add_argument("--kafka", metavar="HOST:PORT", help="the broker; by default $BEFOREHAND_KAFKA")
    sub.add_argument("--parallelism", type=_count, metavar="N", help="by default the cluster's")
    state = sub.add_mutually_exclusive_group()
    state.add_argument("--from", dest="named", metavar="PATH", help="start from this savepoint or checkpoint")
    state.add_argument("--fresh", action="store_true", help="start without the state that the last job left")

    about = "replace the job and keep its state; the old one goes on when the new one is not well"
    sub = verb(subs, "upgrade", upgrade, about, "stream upgrade --set nearline.refresh=250ms")
    _cluster(sub)
    _plan(sub)
    sub.add_argument("--kafka", metavar="HOST:PORT", help="the broker; by default $BEFOREHAND_KAFKA")
    sub.add_argument("--parallelism", type=_count, metavar="N", help="by default the cluster's")
    _replacing(sub)

    about = "go back to the job before the last upgrade, with the state of now"
    sub = verb(subs, "rollback", rollback, about, "stream rollback")
    _cluster(sub)
    _replacing(sub)

    _cluster(verb(subs, "status", status, "the job's state, lag, dead letters and checkpoints", "stream status --json"))

    sub = verb(subs, "savepoint", savepoint, "make a savepoint; the job goes on", "stream savepoint")
    _cluster(sub)
    sub.add_argument("--to", metavar="DIR", help="where; by default the cluster's savepoint folder")

    sub = verb(subs, "stop", stop, "stop the job; the next deploy goes on from here", "stream stop --savepoint")
    _cluster(sub)
    sub.add_argument("--savepoint", action="store_true", help="with a savepoint, as before an upgrade")
    sub.add_argument("--to", metavar="DIR", help="where the savepoint goes; by default the cluster's folder")

    about = "submit what `bench stream` compares with: the same windows, plainly in PyFlink's DataStream API"
    sub = verb(subs, "compare", compare, about, "stream compare --topic some-events")
    _cluster(sub)
    _plan(sub)
    sub.add_argument("--kafka", metavar="HOST:PORT", help="the broker; by default $BEFOREHAND_KAFKA")
    sub.add_argument("--parallelism", type=_count, metavar="N", help="by default the cluster's")
    sub.add_argument("--topic", required=True, help="of events; TOPIC-windows and TOPIC-dead-letters must be there")
    sub.add_argument("--mode", choices=["process", "thread"], default="process", help="of Python (%(default)s)")

    sub = verb(subs, "sql", show_sql, "print the job as SQL, as the plan makes it", "stream sql")
    _plan(sub)


def _replacing(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("--to", metavar="DIR", help="where the savepoint goes; by default the cluster's folder")
    sub.add_argument("--users", type=_count, default=20, metavar="N", help="compare windows of N users (%(default)s)")
    sub.add_argument("--within", type=float, default=WAIT_S, metavar="S", help="well after S seconds (%(default)g)")


def _cluster(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("--flink", metavar="URL", help="the cluster's REST address; by default $BEFOREHAND_FLINK")


def _plan(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("--plan", type=Path, metavar="FILE", help="by default $BEFOREHAND_PLAN or plan.toml")
    sub.add_argument("--set", dest="overrides", action="append", default=[], metavar="SECTION.KEY=VALUE")


def _count(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not 1 or more")
    return number


def deploy(args: argparse.Namespace) -> Result:
    """Nothing is changed when the job runs already; two deploys from one state folder wait for each other."""
    with resume.one_at_a_time():
        return _deploy(args)


def _deploy(args: argparse.Namespace) -> Result:
    flink = Flink(args.flink or address("flink"))
    kafka: str = args.kafka or address("kafka")
    settings = sql.JobSettings.of(_load(args), kafka, args.parallelism)
    running = _living(flink)
    if running:
        say(f"{running.name} is {running.state} already as {running.job_id}; nothing was changed")
        return {"job_id": running.job_id, "state": running.state, "changed": False}
    from streaming import windows  # noqa: PLC0415 - the other verbs need no PyFlink, which takes a second to import

    jars = resume.keep_jars(windows.find_jars())
    path = resume.choose(flink, named=args.named, fresh=args.fresh)
    with step("topics") as made:
        topics = windows.make_topics(windows.start_java(jars), kafka)
        made(f"made {', '.join(topics)}" if topics else "all there")
    with step("submit") as made:
        job_id = windows.submit(settings, flink.url, jars, path)
        made_of = resume.Made(settings, [str(jar) for jar in jars])
        resume.remember(resume.Deployment(job_id, started_from=path, made=made_of))
        made(f"job {job_id} from {path}" if path else f"job {job_id} from the beginning of the topic")
    with step("start") as made:
        state = flink.wait_running(job_id, WAIT_S)
        made(state)
    return {"job_id": job_id, "state": state, "changed": True, "resumed_from": path, "topics_made": topics}


def upgrade(args: argparse.Namespace) -> Result:
    """The running job is replaced by one of the plan, the options and the jars of now."""
    settings = sql.JobSettings.of(_load(args), args.kafka or address("kafka"), args.parallelism)
    from streaming import windows  # noqa: PLC0415 - see _deploy

    jars = [str(jar) for jar in resume.keep_jars(windows.find_jars())]
    return _replace(args, lambda _: resume.Made(settings, jars))


def rollback(args: argparse.Namespace) -> Result:
    """Going back twice is going forward again."""
    return _replace(args, _previous)


def _previous(deployed: resume.Deployment) -> resume.Made:
    if deployed.previous is None:
        raise BeforehandError(
            "no upgrade to go back from", where="stream/deployment.json", mend="Run `stream upgrade`."
        )
    return deployed.previous


def _replace(args: argparse.Namespace, new: Callable[[resume.Deployment], resume.Made]) -> Result:
    flink = Flink(args.flink or address("flink"))
    with resume.one_at_a_time():
        job = _needed(flink)
        deployed, old = replacing.made_of(job)
        target = new(deployed)
        from streaming import probe, windows  # noqa: PLC0415 - see _deploy

        jvm = windows.start_java([Path(jar) for jar in old.jars])
        windows_of_users = probe.Probe(jvm, old.settings.kafka)
        try:
            replacement = replacing.Replacement(flink, windows_of_users, num_users=args.users, within_s=args.within)
            return replacement.run(deployed, old, target, args.to)
        finally:
            windows_of_users.close()


def status(args: argparse.Namespace) -> Result:
    """The newest job of the name, running or not."""
    flink = Flink(args.flink or address("flink"))
    found = flink.jobs(sql.JOB_NAME)
    if not found:
        say("no such job: `./beforehand stream deploy` submits it")
        return {"job_id": None, "state": "ABSENT"}
    told = report(flink, _living(flink) or found[0])
    for line in lines(told):
        say(line)
    return msgspec.to_builtins(told)


def savepoint(args: argparse.Namespace) -> Result:
    """The job goes on; ``deploy --from`` starts from it."""
    flink = Flink(args.flink or address("flink"))
    job = _needed(flink)
    with step("savepoint") as made:
        path = flink.savepoint(job.job_id, WAIT_S, stop=False, target=args.to)
        made(path)
    return {"job_id": job.job_id, "savepoint": path}


def stop(args: argparse.Namespace) -> Result:
    """What it leaves is remembered for the next deploy."""
    flink = Flink(args.flink or address("flink"))
    job = _living(flink)
    if job is None:
        say("the job does not run; nothing was changed")
        return {"job_id": None, "changed": False}
    with step("stop") as made:
        if args.savepoint:
            path = flink.savepoint(job.job_id, WAIT_S, stop=True, target=args.to)
        else:
            flink.cancel(job.job_id, WAIT_S)
            path = flink.checkpoint(job.job_id) or resume.start_of(job.job_id)
        last = resume.recall()
        known = last if last and last.job_id == job.job_id else resume.Deployment(job.job_id)
        resume.remember(msgspec.structs.replace(known, started_from=None, stopped_at=path))
        made(f"state in {path}" if path else "there was no checkpoint yet: nothing is kept")
    return {"job_id": job.job_id, "changed": True, "state_path": path}


def compare(args: argparse.Namespace) -> Result:
    """It is remembered nowhere: whoever submits it cancels it."""
    from streaming import windows  # noqa: PLC0415 - see _deploy
    from streaming.bench import datastream  # noqa: PLC0415

    flink = Flink(args.flink or address("flink"))
    settings = sql.JobSettings.of(_load(args), args.kafka or address("kafka"), args.parallelism)
    jars = windows.find_jars()
    windows.start_java(jars)
    job_id = datastream.submit(settings, flink.url, jars, args.topic, args.mode)
    return {"job_id": job_id, "state": flink.wait_running(job_id, WAIT_S)}


def show_sql(args: argparse.Namespace) -> Result:
    """Needs no cluster."""
    settings = sql.JobSettings.of(_load(args), "$BEFOREHAND_KAFKA")
    statements = [*sql.functions(), *sql.tables(settings), *sql.views(settings), *sql.inserts(settings)]
    configuration = sql.configuration(settings)
    if not args.json:
        print("\n".join(f"SET '{key}' = {sql.text(value)};" for key, value in configuration.items()))
        print("".join(f"\n{sql.dedented(statement)};\n" for statement in statements))
    return {"statements": [sql.dedented(statement) for statement in statements], "configuration": configuration}


def _load(args: argparse.Namespace) -> Plan:
    return load_plan(args.plan, args.overrides)


def _living(flink: Flink) -> Job | None:
    return next((job for job in flink.jobs(sql.JOB_NAME) if not job.over), None)


def _needed(flink: Flink) -> Job:
    job = _living(flink)
    if job is None:
        raise BeforehandError("the windows job does not run", where=flink.url, mend="Run `./beforehand stream deploy`.")
    return job
