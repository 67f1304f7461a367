"""Stages that only count their runs."""

from offline.build.stage import Stage


def made_stages(runs: list[str], fails: str = "") -> tuple[Stage, ...]:
    def stage(name, settings, files=(), after=(), makes=""):
        def run(_build, folder):
            if name == fails:
                raise RuntimeError
            runs.append(name)
            (folder / "out").write_bytes(b"out")
            return {}

        return Stage(name, run, settings, files, after, makes=makes)

    return (
        stage("index", lambda plan: plan.index, ("events.parquet",), makes="semantic_index"),
        stage("train", lambda plan: plan.model, (), ("index",)),
        stage("export", lambda _plan: None, (), ("train",), makes="generator"),
    )
