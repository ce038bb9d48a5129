"""``largeprompt reproduce``: every study, then one report about all of them."""

from pathlib import Path

import typer

from largeprompt.cli.perform import Fresh, Out, Quick, Workers, perform, prepare, reporting_errors


def reproduce(quick: Quick = False, workers: Workers = None, out: Out = Path("runs"), fresh: Fresh = False) -> None:
    """Compute every study of the paper and write the report, OUT/report.html (OUT/report-quick.html with --quick).

    What is stored already is not computed again, so a command that was stopped goes on where it was.
    """
    with reporting_errors(fresh=fresh):
        from largeprompt.report.page import write_report
        from largeprompt.runs.files import RunError, StorageError
        from largeprompt.studies import registry

        wanted, errors = [], []
        for name in registry.OURS:
            try:
                chosen = registry.study(name)
                config = chosen.quick if quick else chosen.config()
                wanted.append((chosen, config, prepare(chosen, config, out, quick=quick, fresh=fresh)))
            except StorageError:
                raise
            except Exception as error:  # one study that cannot be loaded does not take the others with it
                errors.append(RunError(f"{name}: cannot be begun ({type(error).__name__}: {error})."))
        errors += perform(wanted, workers)
        page = "report-quick.html" if quick else "report.html"  # a first look does not replace the full report
        try:
            typer.echo(f"wrote {write_report([run for _, _, run in wanted], out / page)}")
        except RunError as error:
            errors.append(error)
        except OSError as error:
            errors.append(StorageError.of(out, error))
        for trouble in errors:
            typer.echo(f"error: {trouble}", err=True)
        if errors:
            raise typer.Exit(1)
