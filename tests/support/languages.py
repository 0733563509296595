"""The same six texts and thirty true sentences about them in twelve languages, written by hand for the tests.

Each sentence says what its text says, as a fluent answer would: in another order, with other forms of the words and now
and then another word, in about the same places in each language.
"""

# ruff: noqa: E501, RUF001  (texts stay on one line; other alphabets are meant)

from __future__ import annotations

from typing import Final

_ENGLISH: Final = """\
The Aroma 300 coffee machine comes with a warranty of 24 months from the date of purchase. The water tank holds 1.8 litres and must be rinsed every week. The grinder can be set to twelve levels. Descaling is necessary after 200 cups or when the red light flashes. Spare parts can be ordered from the manufacturer for ten years.
- The warranty for the coffee machine lasts 24 months after purchase.
- The water tank has a capacity of 1.8 litres.
- You can set the grinder to twelve different levels.
- When the red light flashes, the machine needs to be descaled.
- For ten years, the manufacturer supplies spare parts.
The city museum is open from Tuesday to Sunday between 10 and 18 o'clock. Admission costs 9 euros; children under twelve enter free of charge. On the first Friday of every month visitors pay nothing. Guided tours in English start at 11 o'clock in the entrance hall. Large bags must be left in the lockers, and photography without flash is allowed.
- The city museum opens at 10 o'clock from Tuesday to Sunday.
- Admission is free of charge for children under twelve.
- Visitors do not have to pay on the first Friday of each month.
- English guided tours begin at 11 o'clock in the entrance hall.
- Visitors must leave large bags in the lockers.
The current account costs 4.90 euros per month. Students under 27 pay no account fee. Withdrawing cash is free at all machines of our bank; at other banks it costs 5 euros. The overdraft interest rate is 11.2 percent per year and is charged quarterly. A lost card must be blocked immediately by telephone.
- The monthly cost of the current account is 4.90 euros.
- Students under 27 have an account without a fee.
- Withdrawing cash at another bank costs 5 euros.
- Overdraft interest of 11.2 percent a year is charged every quarter.
- If you lose your card, you must block it immediately by telephone.
The Lindau dam was built between 1962 and 1968 to protect the valley from floods. It is 95 metres high and 410 metres long. The reservoir supplies drinking water to 300,000 people in the region. A power station at the foot of the dam generates electricity for 20,000 households. Swimming is forbidden, but fishing is allowed with a permit.
- The dam was built from 1962 to 1968.
- It protects the valley against floods.
- The dam is 95 metres high.
- About 300,000 people in the region get their drinking water from the reservoir.
- Fishing is allowed for people with a permit.
The program creates a backup of all files every night at two o'clock. Backups are encrypted and kept for 30 days. Deleted files can be restored by the administrator within this time. If the disk is almost full, the program sends a warning by e-mail. The free version is limited to 50 gigabytes of storage.
- Every night at two o'clock the program backs up all files.
- The backups are stored encrypted for 30 days.
- The administrator can restore deleted files.
- You receive a warning by e-mail when the disk is nearly full.
- The storage of the free version is limited to 50 gigabytes.
Employees are entitled to 28 days of holiday per year. Requests must be submitted to the manager at least three weeks in advance. Unused days can be carried over until 31 March of the following year. Whoever falls ill during the holiday must present a doctor's certificate. Working from home is possible on two days a week after the probation period.
- Each employee is entitled to 28 days of holiday a year.
- Holiday requests have to be submitted to the manager three weeks beforehand.
- Unused days of holiday can be carried over until 31 March.
- An employee who becomes ill during the holiday has to present a doctor's certificate.
- After the probation period, employees can work from home two days a week.
"""

_GERMAN: Final = """\
Die Kaffeemaschine Aroma 300 hat eine Garantie von 24 Monaten ab dem Kaufdatum. Der Wassertank fasst 1,8 Liter und muss jede Woche ausgespült werden. Das Mahlwerk lässt sich auf zwölf Stufen einstellen. Eine Entkalkung ist nach 200 Tassen nötig oder wenn das rote Licht blinkt. Ersatzteile können zehn Jahre lang beim Hersteller bestellt werden.
- Die Garantie für die Kaffeemaschine gilt 24 Monate ab dem Kauf.
- Der Wassertank hat ein Volumen von 1,8 Litern.
- Man kann das Mahlwerk auf zwölf verschiedene Stufen einstellen.
- Wenn das rote Licht blinkt, muss die Maschine entkalkt werden.
- Zehn Jahre lang liefert der Hersteller Ersatzteile.
Das Stadtmuseum ist von Dienstag bis Sonntag zwischen 10 und 18 Uhr geöffnet. Der Eintritt kostet 9 Euro; Kinder unter zwölf Jahren haben freien Eintritt. Am ersten Freitag jedes Monats zahlen Besucher nichts. Führungen auf Englisch beginnen um 11 Uhr in der Eingangshalle. Große Taschen müssen in den Schließfächern gelassen werden, und Fotografieren ohne Blitz ist erlaubt.
- Das Stadtmuseum öffnet von Dienstag bis Sonntag um 10 Uhr.
- Der Eintritt ist für Kinder unter zwölf Jahren frei.
- Besucher müssen am ersten Freitag im Monat nicht zahlen.
- Die englischen Führungen fangen um 11 Uhr in der Eingangshalle an.
- Besucher müssen große Taschen in den Schließfächern lassen.
Das Girokonto kostet 4,90 Euro pro Monat. Studenten unter 27 zahlen keine Kontogebühr. Bargeld abzuheben ist an allen Automaten unserer Bank kostenlos; bei anderen Banken kostet es 5 Euro. Der Zinssatz für Überziehungen beträgt 11,2 Prozent pro Jahr und wird vierteljährlich berechnet. Eine verlorene Karte muss sofort telefonisch gesperrt werden.
- Die monatlichen Kosten des Girokontos betragen 4,90 Euro.
- Studenten unter 27 haben ein Konto ohne Gebühr.
- Bargeld bei einer anderen Bank abzuheben kostet 5 Euro.
- Für Überziehungen werden vierteljährlich Zinsen von 11,2 Prozent im Jahr berechnet.
- Wenn Sie Ihre Karte verlieren, müssen Sie sie sofort telefonisch sperren.
Der Staudamm von Lindau wurde zwischen 1962 und 1968 gebaut, um das Tal vor Überschwemmungen zu schützen. Er ist 95 Meter hoch und 410 Meter lang. Der Stausee versorgt 300.000 Menschen in der Region mit Trinkwasser. Ein Kraftwerk am Fuß des Damms erzeugt Strom für 20.000 Haushalte. Schwimmen ist verboten, Angeln ist aber mit einem Schein erlaubt.
- Der Staudamm wurde von 1962 bis 1968 gebaut.
- Er schützt das Tal gegen Überschwemmungen.
- Der Damm ist 95 Meter hoch.
- Etwa 300.000 Menschen in der Region bekommen ihr Trinkwasser aus dem Stausee.
- Angeln ist für Menschen mit einem Schein erlaubt.
Das Programm erstellt jede Nacht um zwei Uhr eine Sicherung aller Dateien. Sicherungen werden verschlüsselt und 30 Tage lang aufbewahrt. Gelöschte Dateien können in dieser Zeit vom Administrator wiederhergestellt werden. Wenn die Festplatte fast voll ist, sendet das Programm eine Warnung per E-Mail. Die kostenlose Version ist auf 50 Gigabyte Speicher begrenzt.
- Jede Nacht um zwei Uhr sichert das Programm alle Dateien.
- Die Sicherungen werden 30 Tage lang verschlüsselt gespeichert.
- Der Administrator kann gelöschte Dateien wiederherstellen.
- Man erhält eine Warnung per E-Mail, wenn die Festplatte beinahe voll ist.
- Der Speicher der kostenlosen Version ist auf 50 Gigabyte begrenzt.
Mitarbeiter haben Anspruch auf 28 Tage Urlaub pro Jahr. Anträge müssen mindestens drei Wochen im Voraus beim Vorgesetzten eingereicht werden. Nicht genutzte Tage können bis zum 31. März des folgenden Jahres übertragen werden. Wer im Urlaub krank wird, muss ein ärztliches Attest vorlegen. Arbeit von zu Hause ist nach der Probezeit an zwei Tagen in der Woche möglich.
- Jeder Mitarbeiter hat Anspruch auf 28 Tage Urlaub im Jahr.
- Urlaubsanträge müssen drei Wochen vorher beim Vorgesetzten eingereicht werden.
- Nicht genutzte Urlaubstage können bis zum 31. März übertragen werden.
- Ein Mitarbeiter, der im Urlaub erkrankt, muss ein ärztliches Attest vorlegen.
- Nach der Probezeit können Mitarbeiter an zwei Tagen in der Woche von zu Hause arbeiten.
"""

_FRENCH: Final = """\
La machine à café Aroma 300 est livrée avec une garantie de 24 mois à partir de la date d'achat. Le réservoir d'eau contient 1,8 litre et doit être rincé chaque semaine. Le moulin peut être réglé sur douze niveaux. Un détartrage est nécessaire après 200 tasses ou lorsque le voyant rouge clignote. Les pièces de rechange peuvent être commandées auprès du fabricant pendant dix ans.
- La garantie de la machine à café dure 24 mois après l'achat.
- Le réservoir d'eau a une capacité de 1,8 litre.
- Vous pouvez régler le moulin sur douze niveaux différents.
- Quand le voyant rouge clignote, il faut détartrer la machine.
- Pendant dix ans, le fabricant fournit des pièces de rechange.
Le musée de la ville est ouvert du mardi au dimanche entre 10 et 18 heures. L'entrée coûte 9 euros ; les enfants de moins de douze ans entrent gratuitement. Le premier vendredi de chaque mois, les visiteurs ne paient rien. Les visites guidées en anglais commencent à 11 heures dans le hall d'entrée. Les grands sacs doivent être laissés dans les casiers, et la photographie sans flash est autorisée.
- Le musée de la ville ouvre à 10 heures du mardi au dimanche.
- L'entrée est gratuite pour les enfants de moins de douze ans.
- Les visiteurs n'ont pas à payer le premier vendredi du mois.
- Les visites guidées en anglais débutent à 11 heures dans le hall d'entrée.
- Les visiteurs doivent laisser les grands sacs dans les casiers.
Le compte courant coûte 4,90 euros par mois. Les étudiants de moins de 27 ans ne paient pas de frais de compte. Le retrait d'espèces est gratuit à tous les distributeurs de notre banque ; dans les autres banques, il coûte 5 euros. Le taux d'intérêt du découvert est de 11,2 pour cent par an et il est facturé chaque trimestre. Une carte perdue doit être bloquée immédiatement par téléphone.
- Le coût mensuel du compte courant est de 4,90 euros.
- Les étudiants de moins de 27 ans ont un compte sans frais.
- Le retrait d'espèces dans une autre banque coûte 5 euros.
- Les intérêts du découvert, de 11,2 pour cent par an, sont facturés tous les trimestres.
- Si vous perdez votre carte, vous devez la bloquer immédiatement par téléphone.
Le barrage de Lindau a été construit entre 1962 et 1968 pour protéger la vallée des inondations. Il mesure 95 mètres de haut et 410 mètres de long. Le réservoir fournit de l'eau potable à 300 000 personnes dans la région. Une centrale au pied du barrage produit de l'électricité pour 20 000 foyers. La baignade est interdite, mais la pêche est autorisée avec un permis.
- Le barrage a été construit de 1962 à 1968.
- Il protège la vallée contre les inondations.
- Le barrage mesure 95 mètres de haut.
- Environ 300 000 personnes de la région reçoivent leur eau potable du réservoir.
- La pêche est autorisée pour les personnes avec un permis.
Le programme crée une sauvegarde de tous les fichiers chaque nuit à deux heures. Les sauvegardes sont chiffrées et conservées pendant 30 jours. Les fichiers supprimés peuvent être restaurés par l'administrateur pendant ce temps. Si le disque est presque plein, le programme envoie un avertissement par e-mail. La version gratuite est limitée à 50 gigaoctets de stockage.
- Chaque nuit à deux heures, le programme sauvegarde tous les fichiers.
- Les sauvegardes sont stockées chiffrées pendant 30 jours.
- L'administrateur peut restaurer les fichiers supprimés.
- Vous recevez un avertissement par e-mail quand le disque est presque plein.
- Le stockage de la version gratuite est limité à 50 gigaoctets.
Les employés ont droit à 28 jours de congé par an. Les demandes doivent être soumises au responsable au moins trois semaines à l'avance. Les jours non utilisés peuvent être reportés jusqu'au 31 mars de l'année suivante. Celui qui tombe malade pendant le congé doit présenter un certificat médical. Le travail à domicile est possible deux jours par semaine après la période d'essai.
- Chaque employé a droit à 28 jours de congé par an.
- Les demandes de congé doivent être soumises au responsable trois semaines auparavant.
- Les jours de congé non utilisés peuvent être reportés jusqu'au 31 mars.
- Un employé qui tombe malade pendant son congé doit présenter un certificat médical.
- Après la période d'essai, les employés peuvent travailler à domicile deux jours par semaine.
"""

_SPANISH: Final = """\
La cafetera Aroma 300 tiene una garantía de 24 meses a partir de la fecha de compra. El depósito de agua tiene 1,8 litros y debe enjuagarse cada semana. El molinillo se puede ajustar a doce niveles. La descalcificación es necesaria después de 200 tazas o cuando la luz roja parpadea. Las piezas de repuesto se pueden pedir al fabricante durante diez años.
- La garantía de la cafetera dura 24 meses desde la compra.
- El depósito de agua tiene una capacidad de 1,8 litros.
- Puede ajustar el molinillo a doce niveles distintos.
- Cuando la luz roja parpadea, hay que descalcificar la máquina.
- Durante diez años, el fabricante suministra piezas de repuesto.
El museo de la ciudad está abierto de martes a domingo entre las 10 y las 18 horas. La entrada cuesta 9 euros; los niños menores de doce años entran gratis. El primer viernes de cada mes los visitantes no pagan nada. Las visitas guiadas en inglés empiezan a las 11 horas en el vestíbulo. Las bolsas grandes deben dejarse en las taquillas, y se permite la fotografía sin flash.
- El museo de la ciudad abre a las 10 horas de martes a domingo.
- La entrada es gratis para los niños menores de doce años.
- Los visitantes no tienen que pagar el primer viernes del mes.
- Las visitas guiadas en inglés comienzan a las 11 horas en el vestíbulo.
- Los visitantes deben dejar las bolsas grandes en las taquillas.
La cuenta corriente cuesta 4,90 euros al mes. Los estudiantes menores de 27 años no pagan comisión de cuenta. Retirar efectivo es gratis en todos los cajeros de nuestro banco; en otros bancos cuesta 5 euros. El tipo de interés del descubierto es del 11,2 por ciento al año y se cobra trimestralmente. Una tarjeta perdida debe bloquearse inmediatamente por teléfono.
- El coste mensual de la cuenta corriente es de 4,90 euros.
- Los estudiantes menores de 27 años tienen una cuenta sin comisión.
- Retirar efectivo en otro banco cuesta 5 euros.
- Los intereses del descubierto, del 11,2 por ciento al año, se cobran cada trimestre.
- Si pierde su tarjeta, debe bloquearla inmediatamente por teléfono.
La presa de Lindau se construyó entre 1962 y 1968 para proteger el valle de las inundaciones. Mide 95 metros de alto y 410 metros de largo. El embalse suministra agua potable a 300.000 personas en la región. Una central al pie de la presa genera electricidad para 20.000 hogares. Está prohibido nadar, pero se permite pescar con un permiso.
- La presa fue construida de 1962 a 1968.
- Protege el valle contra las inundaciones.
- La presa mide 95 metros de alto.
- Unas 300.000 personas de la región reciben su agua potable del embalse.
- Se permite pescar a las personas con un permiso.
El programa crea una copia de seguridad de todos los archivos cada noche a las dos. Las copias se cifran y se conservan durante 30 días. Los archivos borrados pueden ser restaurados por el administrador en este tiempo. Si el disco está casi lleno, el programa envía un aviso por correo electrónico. La versión gratuita está limitada a 50 gigabytes de almacenamiento.
- Cada noche a las dos, el programa hace una copia de todos los archivos.
- Las copias se guardan cifradas durante 30 días.
- El administrador puede restaurar los archivos borrados.
- Usted recibe un aviso por correo electrónico cuando el disco está casi lleno.
- El almacenamiento de la versión gratuita está limitado a 50 gigabytes.
Los empleados tienen derecho a 28 días de vacaciones al año. Las solicitudes deben presentarse al jefe con al menos tres semanas de antelación. Los días no utilizados pueden trasladarse hasta el 31 de marzo del año siguiente. Quien enferma durante las vacaciones debe presentar un certificado médico. Trabajar desde casa es posible dos días a la semana después del período de prueba.
- Cada empleado tiene derecho a 28 días de vacaciones al año.
- Las solicitudes de vacaciones deben presentarse al jefe tres semanas antes.
- Los días de vacaciones no utilizados pueden trasladarse hasta el 31 de marzo.
- Un empleado que enferma durante las vacaciones debe presentar un certificado médico.
- Después del período de prueba, los empleados pueden trabajar desde casa dos días a la semana.
"""

_PORTUGUESE: Final = """\
A máquina de café Aroma 300 tem uma garantia de 24 meses a partir da data da compra. O depósito de água leva 1,8 litros e deve ser lavado todas as semanas. O moinho pode ser ajustado para doze níveis. A descalcificação é necessária depois de 200 chávenas ou quando a luz vermelha pisca. As peças de reposição podem ser encomendadas ao fabricante durante dez anos.
- A garantia da máquina de café dura 24 meses após a compra.
- O depósito de água tem uma capacidade de 1,8 litros.
- Você pode ajustar o moinho para doze níveis diferentes.
- Quando a luz vermelha pisca, é preciso descalcificar a máquina.
- Durante dez anos, o fabricante fornece peças de reposição.
O museu da cidade está aberto de terça a domingo entre as 10 e as 18 horas. A entrada custa 9 euros; crianças com menos de doze anos entram gratuitamente. Na primeira sexta-feira de cada mês os visitantes não pagam nada. As visitas guiadas em inglês começam às 11 horas no átrio da entrada. As malas grandes devem ser deixadas nos cacifos, e a fotografia sem flash é permitida.
- O museu da cidade abre às 10 horas de terça a domingo.
- A entrada é gratuita para crianças com menos de doze anos.
- Os visitantes não têm de pagar na primeira sexta-feira do mês.
- As visitas guiadas em inglês iniciam às 11 horas no átrio da entrada.
- Os visitantes devem deixar as malas grandes nos cacifos.
A conta corrente custa 4,90 euros por mês. Estudantes com menos de 27 anos não pagam taxa de conta. Levantar dinheiro é grátis em todas as caixas do nosso banco; em outros bancos custa 5 euros. A taxa de juros do descoberto é de 11,2 por cento por ano e é cobrada trimestralmente. Um cartão perdido deve ser bloqueado imediatamente por telefone.
- O custo mensal da conta corrente é de 4,90 euros.
- Estudantes com menos de 27 anos têm uma conta sem taxa.
- Levantar dinheiro em outro banco custa 5 euros.
- Os juros do descoberto, de 11,2 por cento por ano, são cobrados a cada trimestre.
- Se perder o seu cartão, deve bloqueá-lo imediatamente por telefone.
A barragem de Lindau foi construída entre 1962 e 1968 para proteger o vale das inundações. Tem 95 metros de altura e 410 metros de comprimento. O reservatório fornece água potável a 300.000 pessoas na região. Uma central ao pé da barragem gera eletricidade para 20.000 famílias. Nadar é proibido, mas pescar é permitido com uma licença.
- A barragem foi construída de 1962 a 1968.
- Ela protege o vale contra as inundações.
- A barragem tem 95 metros de altura.
- Cerca de 300.000 pessoas da região recebem a sua água potável do reservatório.
- Pescar é permitido para pessoas com uma licença.
O programa cria uma cópia de segurança de todos os ficheiros todas as noites às duas horas. As cópias são encriptadas e guardadas durante 30 dias. Os ficheiros apagados podem ser restaurados pelo administrador durante este tempo. Se o disco estiver quase cheio, o programa envia um aviso por e-mail. A versão gratuita é limitada a 50 gigabytes de armazenamento.
- Todas as noites às duas horas, o programa faz uma cópia de todos os ficheiros.
- As cópias são armazenadas encriptadas durante 30 dias.
- O administrador pode restaurar ficheiros apagados.
- Você recebe um aviso por e-mail quando o disco está quase cheio.
- O armazenamento da versão gratuita é limitado a 50 gigabytes.
Os empregados têm direito a 28 dias de férias por ano. Os pedidos devem ser apresentados ao gerente com pelo menos três semanas de antecedência. Os dias não utilizados podem ser transferidos até 31 de março do ano seguinte. Quem adoecer durante as férias deve apresentar um atestado médico. Trabalhar em casa é possível em dois dias por semana após o período de experiência.
- Cada empregado tem direito a 28 dias de férias por ano.
- Os pedidos de férias devem ser apresentados ao gerente três semanas antes.
- Os dias de férias não utilizados podem ser transferidos até 31 de março.
- Um empregado que adoece durante as férias deve apresentar um atestado médico.
- Após o período de experiência, os empregados podem trabalhar em casa dois dias por semana.
"""

_ITALIAN: Final = """\
La macchina da caffè Aroma 300 ha una garanzia di 24 mesi dalla data di acquisto. Il serbatoio dell'acqua contiene 1,8 litri e deve essere risciacquato ogni settimana. Il macinino può essere regolato su dodici livelli. La decalcificazione è necessaria dopo 200 tazze o quando la luce rossa lampeggia. I pezzi di ricambio possono essere ordinati dal produttore per dieci anni.
- La garanzia della macchina da caffè dura 24 mesi dopo l'acquisto.
- Il serbatoio dell'acqua ha una capacità di 1,8 litri.
- Si può regolare il macinino su dodici livelli diversi.
- Quando la luce rossa lampeggia, bisogna decalcificare la macchina.
- Per dieci anni il produttore fornisce i pezzi di ricambio.
Il museo della città è aperto da martedì a domenica tra le 10 e le 18. L'ingresso costa 9 euro; i bambini sotto i dodici anni entrano gratis. Il primo venerdì di ogni mese i visitatori non pagano nulla. Le visite guidate in inglese iniziano alle ore 11 nell'atrio. Le borse grandi devono essere lasciate negli armadietti, e la fotografia senza flash è permessa.
- Il museo della città apre alle 10 da martedì a domenica.
- L'ingresso è gratis per i bambini sotto i dodici anni.
- I visitatori non devono pagare il primo venerdì del mese.
- Le visite guidate in inglese cominciano alle ore 11 nell'atrio.
- I visitatori devono lasciare le borse grandi negli armadietti.
Il conto corrente costa 4,90 euro al mese. Gli studenti sotto i 27 anni non pagano spese di conto. Prelevare contanti è gratis a tutti gli sportelli della nostra banca; presso altre banche costa 5 euro. Il tasso di interesse dello scoperto è dell'11,2 per cento all'anno e viene addebitato ogni trimestre. Una carta smarrita deve essere bloccata immediatamente per telefono.
- Il costo mensile del conto corrente è di 4,90 euro.
- Gli studenti sotto i 27 anni hanno un conto senza spese.
- Prelevare contanti presso un'altra banca costa 5 euro.
- Gli interessi dello scoperto, dell'11,2 per cento all'anno, vengono addebitati trimestralmente.
- Se si smarrisce la carta, bisogna bloccarla immediatamente per telefono.
La diga di Lindau fu costruita tra il 1962 e il 1968 per proteggere la valle dalle inondazioni. È alta 95 metri e lunga 410 metri. Il bacino fornisce acqua potabile a 300.000 persone nella regione. Una centrale ai piedi della diga genera elettricità per 20.000 famiglie. Nuotare è vietato, ma pescare è permesso con una licenza.
- La diga è stata costruita dal 1962 al 1968.
- Protegge la valle contro le inondazioni.
- La diga è alta 95 metri.
- Circa 300.000 persone della regione ricevono la loro acqua potabile dal bacino.
- Pescare è permesso alle persone con una licenza.
Il programma crea una copia di sicurezza di tutti i file ogni notte alle due. Le copie vengono cifrate e conservate per 30 giorni. I file cancellati possono essere ripristinati dall'amministratore in questo periodo. Se il disco è quasi pieno, il programma invia un avviso via e-mail. La versione gratuita è limitata a 50 gigabyte di spazio.
- Ogni notte alle due il programma fa una copia di tutti i file.
- Le copie vengono archiviate cifrate per 30 giorni.
- L'amministratore può ripristinare i file cancellati.
- Si riceve un avviso via e-mail quando il disco è quasi pieno.
- Lo spazio della versione gratuita è limitato a 50 gigabyte.
I dipendenti hanno diritto a 28 giorni di ferie all'anno. Le richieste devono essere presentate al responsabile con almeno tre settimane di anticipo. I giorni non utilizzati possono essere trasferiti fino al 31 marzo dell'anno successivo. Chi si ammala durante le ferie deve presentare un certificato medico. Lavorare da casa è possibile due giorni alla settimana dopo il periodo di prova.
- Ogni dipendente ha diritto a 28 giorni di ferie all'anno.
- Le richieste di ferie devono essere presentate al responsabile tre settimane prima.
- I giorni di ferie non utilizzati possono essere trasferiti fino al 31 marzo.
- Un dipendente che si ammala durante le ferie deve presentare un certificato medico.
- Dopo il periodo di prova, i dipendenti possono lavorare da casa due giorni alla settimana.
"""

_DUTCH: Final = """\
Het koffiezetapparaat Aroma 300 heeft een garantie van 24 maanden vanaf de datum van aankoop. De watertank bevat 1,8 liter en moet elke week worden gespoeld. De molen kan op twaalf standen worden ingesteld. Ontkalken is nodig na 200 kopjes of als het rode lampje knippert. Reserveonderdelen kunnen tien jaar lang bij de fabrikant worden besteld.
- De garantie op het koffiezetapparaat duurt 24 maanden na aankoop.
- De watertank heeft een inhoud van 1,8 liter.
- U kunt de molen op twaalf verschillende standen instellen.
- Als het rode lampje knippert, moet het apparaat worden ontkalkt.
- Tien jaar lang levert de fabrikant reserveonderdelen.
Het stadsmuseum is van dinsdag tot zondag tussen 10 en 18 uur geopend. De toegang kost 9 euro; kinderen onder de twaalf jaar hebben gratis toegang. Op de eerste vrijdag van elke maand betalen bezoekers niets. Rondleidingen in het Engels beginnen om 11 uur in de hal. Grote tassen moeten in de kluisjes worden gelaten, en fotograferen zonder flits is toegestaan.
- Het stadsmuseum opent van dinsdag tot zondag om 10 uur.
- De toegang is gratis voor kinderen onder de twaalf jaar.
- Bezoekers hoeven op de eerste vrijdag van de maand niet te betalen.
- De Engelse rondleidingen starten om 11 uur in de hal.
- Bezoekers moeten grote tassen in de kluisjes laten.
De betaalrekening kost 4,90 euro per maand. Studenten onder de 27 betalen geen kosten voor de rekening. Contant geld opnemen is gratis bij alle automaten van onze bank; bij andere banken kost het 5 euro. De rente voor roodstand is 11,2 procent per jaar en wordt elk kwartaal berekend. Een verloren kaart moet onmiddellijk telefonisch worden geblokkeerd.
- De maandelijkse kosten van de betaalrekening zijn 4,90 euro.
- Studenten onder de 27 hebben een rekening zonder kosten.
- Contant geld opnemen bij een andere bank kost 5 euro.
- Voor roodstand wordt per kwartaal een rente van 11,2 procent per jaar berekend.
- Als u uw kaart verliest, moet u die onmiddellijk telefonisch blokkeren.
De stuwdam van Lindau werd tussen 1962 en 1968 gebouwd om het dal tegen overstromingen te beschermen. Hij is 95 meter hoog en 410 meter lang. Het stuwmeer levert drinkwater aan 300.000 mensen in de regio. Een centrale aan de voet van de dam wekt elektriciteit op voor 20.000 huishoudens. Zwemmen is verboden, maar vissen is toegestaan met een vergunning.
- De stuwdam is van 1962 tot 1968 gebouwd.
- Hij beschermt het dal tegen overstromingen.
- De dam is 95 meter hoog.
- Ongeveer 300.000 mensen in de regio krijgen hun drinkwater uit het stuwmeer.
- Vissen is toegestaan voor mensen met een vergunning.
Het programma maakt elke nacht om twee uur een back-up van alle bestanden. Back-ups worden versleuteld en 30 dagen bewaard. Verwijderde bestanden kunnen binnen deze tijd door de beheerder worden hersteld. Als de schijf bijna vol is, stuurt het programma een waarschuwing per e-mail. De gratis versie is beperkt tot 50 gigabyte opslag.
- Elke nacht om twee uur maakt het programma een kopie van alle bestanden.
- De back-ups worden 30 dagen versleuteld opgeslagen.
- De beheerder kan verwijderde bestanden herstellen.
- U krijgt een waarschuwing per e-mail wanneer de schijf bijna vol is.
- De opslag van de gratis versie is beperkt tot 50 gigabyte.
Werknemers hebben recht op 28 dagen vakantie per jaar. Aanvragen moeten minstens drie weken van tevoren bij de leidinggevende worden ingediend. Niet gebruikte dagen kunnen tot 31 maart van het volgende jaar worden meegenomen. Wie tijdens de vakantie ziek wordt, moet een doktersverklaring overleggen. Thuiswerken is na de proeftijd mogelijk op twee dagen per week.
- Elke werknemer heeft recht op 28 dagen vakantie per jaar.
- Vakantieaanvragen moeten drie weken eerder bij de leidinggevende worden ingediend.
- Niet gebruikte vakantiedagen kunnen tot 31 maart worden meegenomen.
- Een werknemer die tijdens de vakantie ziek wordt, moet een doktersverklaring overleggen.
- Na de proeftijd kunnen werknemers twee dagen per week thuiswerken.
"""

_RUSSIAN: Final = """\
Кофемашина Aroma 300 поставляется с гарантией 24 месяца с даты покупки. Бак для воды вмещает 1,8 литра, его нужно промывать каждую неделю. Кофемолку можно настроить на двенадцать уровней. Очистка от накипи необходима после 200 чашек или когда мигает красная лампочка. Запасные части можно заказать у производителя в течение десяти лет.
- Гарантия на кофемашину действует 24 месяца после покупки.
- Бак для воды имеет объём 1,8 литра.
- Вы можете настроить кофемолку на двенадцать разных уровней.
- Когда мигает красная лампочка, машину нужно очистить от накипи.
- В течение десяти лет производитель поставляет запасные части.
Городской музей открыт со вторника по воскресенье с 10 до 18 часов. Вход стоит 9 евро; дети до двенадцати лет проходят бесплатно. В первую пятницу каждого месяца посетители ничего не платят. Экскурсии на английском языке начинаются в 11 часов в вестибюле. Большие сумки нужно оставлять в шкафчиках, фотографировать без вспышки разрешается.
- Городской музей открывается в 10 часов со вторника по воскресенье.
- Вход для детей до двенадцати лет бесплатный.
- Посетители могут не платить в первую пятницу месяца.
- Английские экскурсии стартуют в 11 часов в вестибюле.
- Посетители должны оставлять большие сумки в шкафчиках.
Расчётный счёт стоит 4,90 евро в месяц. Студенты до 27 лет не платят комиссию за счёт. Снятие наличных бесплатно во всех банкоматах нашего банка; в других банках оно стоит 5 евро. Процентная ставка по овердрафту составляет 11,2 процента в год и начисляется ежеквартально. Потерянную карту нужно немедленно заблокировать по телефону.
- Ежемесячная стоимость расчётного счёта составляет 4,90 евро.
- Студенты до 27 лет имеют счёт без комиссии.
- Снятие наличных в другом банке стоит 5 евро.
- Проценты по овердрафту, 11,2 процента в год, начисляются каждый квартал.
- Если вы потеряли карту, её нужно немедленно заблокировать по телефону.
Плотина в Линдау была построена между 1962 и 1968 годами для защиты долины от наводнений. Её высота 95 метров, а длина 410 метров. Водохранилище снабжает питьевой водой 300 000 человек в регионе. Электростанция у подножия плотины вырабатывает электричество для 20 000 домов. Купаться запрещено, но рыбалка разрешена при наличии лицензии.
- Плотину построили с 1962 по 1968 год.
- Она защищает долину от наводнений.
- Высота плотины 95 метров.
- Около 300 000 человек в регионе получают питьевую воду из водохранилища.
- Рыбалка разрешена людям с лицензией.
Программа создаёт резервную копию всех файлов каждую ночь в два часа. Резервные копии шифруются и хранятся 30 дней. Удалённые файлы могут быть восстановлены администратором в течение этого времени. Если диск почти заполнен, программа отправляет предупреждение по электронной почте. Бесплатная версия ограничена 50 гигабайтами памяти.
- Каждую ночь в два часа программа делает копию всех файлов.
- Резервные копии сохраняются зашифрованными 30 дней.
- Администратор может восстановить удалённые файлы.
- Вы получаете предупреждение по электронной почте, когда диск почти заполнен.
- Память бесплатной версии ограничена 50 гигабайтами.
Сотрудники имеют право на 28 дней отпуска в год. Заявления нужно подавать руководителю не менее чем за три недели. Неиспользованные дни можно перенести до 31 марта следующего года. Тот, кто заболел во время отпуска, должен предъявить справку от врача. Работа из дома возможна два дня в неделю после испытательного срока.
- Каждый сотрудник имеет право на 28 дней отпуска в год.
- Заявления на отпуск подаются руководителю за три недели.
- Неиспользованные дни отпуска можно перенести до 31 марта.
- Сотрудник, который заболел во время отпуска, должен предъявить справку от врача.
- После испытательного срока сотрудники могут работать из дома два дня в неделю.
"""

_ARABIC: Final = """\
تأتي آلة القهوة أروما 300 مع ضمان لمدة 24 شهرا من تاريخ الشراء. يتسع خزان الماء إلى 1.8 لتر ويجب غسله كل أسبوع. يمكن ضبط المطحنة على اثني عشر مستوى. إزالة الكلس ضرورية بعد 200 فنجان أو عندما يومض الضوء الأحمر. يمكن طلب قطع الغيار من الشركة المصنعة لمدة عشر سنوات.
- ضمان آلة القهوة يستمر 24 شهرا بعد الشراء.
- خزان الماء له سعة 1.8 لتر.
- تستطيع ضبط المطحنة على اثني عشر مستوى مختلفا.
- عندما يومض الضوء الأحمر، تحتاج الآلة إلى إزالة الكلس.
- لمدة عشر سنوات توفر الشركة المصنعة قطع الغيار.
متحف المدينة مفتوح من الثلاثاء إلى الأحد بين الساعة 10 والساعة 18. يكلف الدخول 9 يورو؛ ويدخل الأطفال دون الثانية عشرة مجانا. في أول جمعة من كل شهر لا يدفع الزوار شيئا. تبدأ الجولات المصحوبة بمرشد باللغة الإنجليزية الساعة 11 في قاعة المدخل. يجب ترك الحقائب الكبيرة في الخزائن، ويسمح بالتصوير دون فلاش.
- يفتح متحف المدينة الساعة 10 من الثلاثاء إلى الأحد.
- الدخول مجاني للأطفال دون الثانية عشرة.
- لا يجب على الزوار الدفع في أول جمعة من الشهر.
- تنطلق الجولات الإنجليزية المصحوبة بمرشد الساعة 11 في قاعة المدخل.
- يجب على الزوار ترك الحقائب الكبيرة في الخزائن.
يكلف الحساب الجاري 4.90 يورو في الشهر. لا يدفع الطلاب دون 27 سنة رسوم الحساب. سحب النقود مجاني من جميع أجهزة مصرفنا؛ وفي المصارف الأخرى يكلف 5 يورو. سعر فائدة السحب على المكشوف هو 11.2 بالمئة في السنة ويحسب كل ثلاثة أشهر. يجب إيقاف البطاقة المفقودة فورا عن طريق الهاتف.
- التكلفة الشهرية للحساب الجاري هي 4.90 يورو.
- الطلاب دون 27 سنة لهم حساب بدون رسوم.
- سحب النقود من مصرف آخر يكلف 5 يورو.
- تحسب فائدة السحب على المكشوف، وهي 11.2 بالمئة في السنة، مرة كل ثلاثة أشهر.
- إذا فقدت بطاقتك، يجب إيقافها فورا عن طريق الهاتف.
بني سد لينداو بين عامي 1962 و1968 لحماية الوادي من الفيضانات. يبلغ ارتفاعه 95 مترا وطوله 410 أمتار. يوفر الخزان مياه الشرب إلى 300,000 شخص في المنطقة. تولد محطة عند قدم السد الكهرباء من أجل 20,000 منزل. السباحة ممنوعة، لكن الصيد مسموح بتصريح.
- بني السد من 1962 إلى 1968.
- يحمي السد الوادي من الفيضانات.
- يبلغ ارتفاع السد 95 مترا.
- حوالي 300,000 شخص في المنطقة يحصلون على مياه الشرب من الخزان.
- الصيد مسموح للأشخاص بتصريح.
ينشئ البرنامج نسخة احتياطية من جميع الملفات كل ليلة في الساعة الثانية. النسخ الاحتياطية مشفرة وتحفظ لمدة 30 يوما. يمكن للمسؤول استعادة الملفات المحذوفة خلال هذه المدة. إذا كان القرص شبه ممتلئ، يرسل البرنامج تحذيرا بالبريد الإلكتروني. النسخة المجانية محدودة إلى 50 جيجابايت من التخزين.
- كل ليلة في الساعة الثانية ينسخ البرنامج جميع الملفات.
- تخزن النسخ الاحتياطية مشفرة لمدة 30 يوما.
- يستطيع المسؤول استعادة الملفات المحذوفة.
- تتلقى تحذيرا بالبريد الإلكتروني عندما يكون القرص شبه ممتلئ.
- تخزين النسخة المجانية محدود إلى 50 جيجابايت.
للموظفين الحق في 28 يوما من الإجازة في السنة. يجب تقديم الطلبات إلى المدير قبل ثلاثة أسابيع على الأقل. يمكن نقل الأيام غير المستخدمة حتى 31 مارس من السنة التالية. من يمرض خلال الإجازة يجب أن يقدم شهادة طبية. العمل من المنزل ممكن يومين في الأسبوع بعد فترة التجربة.
- لكل موظف الحق في 28 يوما من الإجازة في السنة.
- يجب تقديم طلبات الإجازة إلى المدير قبل ثلاثة أسابيع.
- يمكن نقل أيام الإجازة غير المستخدمة حتى 31 مارس.
- الموظف الذي يمرض خلال الإجازة يجب أن يقدم شهادة طبية.
- بعد فترة التجربة يستطيع الموظفون العمل من المنزل يومين في الأسبوع.
"""

_JAPANESE: Final = """\
コーヒーメーカーAroma 300には、購入日から24か月の保証が付いています。水タンクの容量は1.8リットルで、毎週すすぐ必要があります。グラインダーは12段階に設定できます。200杯を淹れた後、または赤いランプが点滅したときは、除石灰が必要です。交換部品は10年間メーカーに注文できます。
- コーヒーメーカーの保証は購入後24か月間です。
- 水タンクには1.8リットル入ります。
- グラインダーは12の異なる段階に設定することができます。
- 赤いランプが点滅したら、除石灰をしなければなりません。
- メーカーは10年間、交換部品を供給します。
市立博物館は火曜日から日曜日の10時から18時まで開いています。入場料は9ユーロで、12歳未満の子供は無料で入場できます。毎月第一金曜日、来館者は料金を払いません。英語のガイドツアーは11時に玄関ホールで始まります。大きなかばんはロッカーに預けなければならず、フラッシュなしの撮影は許可されています。
- 市立博物館は火曜日から日曜日まで、10時に開きます。
- 12歳未満の子供の入場は無料です。
- 来館者は毎月第一金曜日には料金を払う必要がありません。
- 英語のガイドツアーは玄関ホールで11時に開始します。
- 来館者は大きなかばんをロッカーに預ける必要があります。
当座口座の料金は月額4.90ユーロです。27歳未満の学生は口座手数料を払いません。当行のすべての機械では現金の引き出しは無料ですが、他の銀行では5ユーロかかります。当座貸越の金利は年11.2パーセントで、四半期ごとに請求されます。紛失したカードは直ちに電話で停止しなければなりません。
- 当座口座は毎月4.90ユーロかかります。
- 27歳未満の学生は手数料なしで口座を持てます。
- 他の銀行での現金の引き出しには5ユーロかかります。
- 年11.2パーセントの当座貸越の金利は、四半期に一度請求されます。
- カードを紛失した場合は、直ちに電話で停止する必要があります。
リンダウのダムは、谷を洪水から守るために1962年から1968年にかけて建設されました。高さは95メートル、長さは410メートルです。貯水池は地域の30万人に飲料水を供給しています。ダムの麓にある発電所は2万世帯分の電気を発電します。水泳は禁止されていますが、許可証があれば釣りはできます。
- ダムは1962年から1968年の間に建設されました。
- ダムは谷を洪水から守っています。
- ダムの高さは95メートルです。
- 地域の約30万人が貯水池から飲料水を得ています。
- 許可証を持つ人は釣りができます。
このプログラムは毎晩2時にすべてのファイルのバックアップを作成します。バックアップは暗号化され、30日間保存されます。削除されたファイルは、この期間内に管理者が復元できます。ディスクがほぼ満杯の場合、プログラムは電子メールで警告を送信します。無料版の保存容量は50ギガバイトに制限されています。
- 毎晩2時にプログラムがすべてのファイルをバックアップします。
- バックアップは暗号化されて30日間保管されます。
- 管理者は削除されたファイルを復元することができます。
- ディスクがほぼ満杯になると、電子メールで警告が届きます。
- 無料版は50ギガバイトの保存容量に制限されています。
従業員は年間28日の休暇を取る権利があります。申請は少なくとも3週間前に上司に提出しなければなりません。未使用の日数は翌年の3月31日まで繰り越すことができます。休暇中に病気になった人は、医師の診断書を提出しなければなりません。試用期間の後は、週に2日の在宅勤務が可能です。
- 各従業員には年間28日の休暇の権利があります。
- 休暇の申請は3週間前に上司に提出する必要があります。
- 未使用の休暇の日数は3月31日まで繰り越せます。
- 休暇中に病気になった従業員は医師の診断書を提出する必要があります。
- 試用期間が終わると、従業員は週に2日、在宅勤務ができます。
"""

_CHINESE: Final = """\
Aroma 300咖啡机自购买之日起享有24个月的保修。水箱容量为1.8升，必须每周冲洗一次。研磨器可以设置为十二个档位。冲泡200杯之后或者红灯闪烁时需要除垢。十年之内可以向制造商订购备件。
- 咖啡机的保修期为购买后24个月。
- 水箱可以装1.8升水。
- 您可以把研磨器设置为十二个不同的档位。
- 红灯闪烁的时候，机器需要除垢。
- 制造商在十年之内供应备件。
市博物馆星期二至星期日10点到18点开放。门票为9欧元，十二岁以下的儿童免费入场。每月的第一个星期五，参观者无需付费。英语导览11点在入口大厅开始。大包必须存放在储物柜里，允许不用闪光灯拍照。
- 市博物馆从星期二到星期日10点开门。
- 十二岁以下的儿童可以免费入场。
- 参观者在每个月的第一个星期五不用付费。
- 英语导览于11点在入口大厅开始。
- 参观者必须把大包存放在储物柜里。
活期账户每月收费4.90欧元。27岁以下的学生不用支付账户费用。在本行的所有取款机上提取现金免费，在其他银行则收费5欧元。透支利率为每年百分之11.2，按季度收取。丢失的卡必须立即通过电话冻结。
- 活期账户的每月费用是4.90欧元。
- 27岁以下的学生的账户没有费用。
- 在另一家银行提取现金收费5欧元。
- 每年百分之11.2的透支利息每个季度收取一次。
- 如果您丢失了卡，必须立即通过电话冻结它。
林道大坝建于1962年至1968年，目的是保护山谷免受洪水侵袭。它高95米，长410米。水库为该地区的30万人供应饮用水。坝脚下的发电站为2万户家庭发电。禁止游泳，但持有许可证可以钓鱼。
- 大坝是1962年到1968年建造的。
- 它保护山谷不受洪水侵袭。
- 大坝高95米。
- 该地区大约30万人从水库得到饮用水。
- 持有许可证的人可以钓鱼。
该程序每晚两点创建所有文件的备份。备份经过加密，保存30天。管理员可以在这段时间内恢复已删除的文件。如果磁盘快满了，程序会通过电子邮件发送警告。免费版的存储空间限制为50GB。
- 程序每晚两点备份所有文件。
- 备份加密存储30天。
- 已删除的文件可以由管理员恢复。
- 磁盘将满时，您会收到电子邮件警告。
- 免费版限制为50GB的存储空间。
员工每年有权享受28天假期。申请必须至少提前三周提交给经理。未使用的天数可以结转到第二年的3月31日。在假期里生病的人必须出示医生证明。试用期之后，每周可以在家工作两天。
- 每个员工每年有权享受28天的假期。
- 假期申请必须提前三周提交给经理。
- 未使用的假期天数可以结转到3月31日。
- 在假期里生病的员工必须出示医生证明。
- 试用期之后，员工每周可以有两天在家工作。
"""

_HINDI: Final = """\
अरोमा 300 कॉफी मशीन के साथ खरीद की तारीख से 24 महीने की वारंटी मिलती है। पानी की टंकी में 1.8 लीटर पानी आता है और उसे हर हफ्ते धोना चाहिए। ग्राइंडर को बारह स्तरों पर सेट किया जा सकता है। 200 कप के बाद या लाल बत्ती चमकने पर मशीन की सफाई जरूरी है। अतिरिक्त पुर्जे दस साल तक निर्माता से मंगवाए जा सकते हैं।
- कॉफी मशीन की वारंटी खरीद के बाद 24 महीने चलती है।
- पानी की टंकी की क्षमता 1.8 लीटर है।
- आप ग्राइंडर को बारह अलग स्तरों पर सेट कर सकते हैं।
- जब लाल बत्ती चमकती है, तब मशीन की सफाई करनी होती है।
- निर्माता दस साल तक अतिरिक्त पुर्जे देता है।
नगर संग्रहालय मंगलवार से रविवार तक 10 से 18 बजे के बीच खुला रहता है। प्रवेश शुल्क 9 यूरो है; बारह साल से कम उम्र के बच्चों का प्रवेश निःशुल्क है। हर महीने के पहले शुक्रवार को आगंतुक कुछ नहीं देते। अंग्रेजी में निर्देशित दौरे 11 बजे प्रवेश कक्ष में शुरू होते हैं। बड़े बैग लॉकर में छोड़ने चाहिए, और बिना फ्लैश के फोटो लेने की अनुमति है।
- नगर संग्रहालय मंगलवार से रविवार तक 10 बजे खुलता है।
- बारह साल से कम उम्र के बच्चों के लिए प्रवेश निःशुल्क है।
- आगंतुकों को महीने के पहले शुक्रवार को शुल्क नहीं देना पड़ता।
- अंग्रेजी निर्देशित दौरे 11 बजे प्रवेश कक्ष में आरंभ होते हैं।
- आगंतुकों को बड़े बैग लॉकर में छोड़ने चाहिए।
चालू खाते का खर्च 4.90 यूरो प्रति माह है। 27 साल से कम उम्र के छात्र खाते का शुल्क नहीं देते। हमारे बैंक की सभी मशीनों से नकद निकालना मुफ्त है; दूसरे बैंकों में इसका खर्च 5 यूरो है। ओवरड्राफ्ट की ब्याज दर 11.2 प्रतिशत प्रति वर्ष है और हर तिमाही में ली जाती है। खोया हुआ कार्ड तुरंत फोन से बंद करवाना चाहिए।
- चालू खाते का मासिक खर्च 4.90 यूरो है।
- 27 साल से कम उम्र के छात्रों का खाता बिना शुल्क का है।
- दूसरे बैंक से नकद निकालने का खर्च 5 यूरो है।
- ओवरड्राफ्ट का 11.2 प्रतिशत प्रति वर्ष का ब्याज हर तिमाही लिया जाता है।
- अगर आपका कार्ड खो जाए, तो उसे तुरंत फोन से बंद करवाना चाहिए।
लिंडाउ बांध 1962 और 1968 के बीच घाटी को बाढ़ से बचाने के लिए बनाया गया था। यह 95 मीटर ऊंचा और 410 मीटर लंबा है। जलाशय क्षेत्र के 300,000 लोगों को पीने का पानी देता है। बांध के नीचे का बिजलीघर 20,000 घरों के लिए बिजली बनाता है। तैरना मना है, लेकिन अनुमति पत्र के साथ मछली पकड़ सकते हैं।
- बांध 1962 से 1968 तक बनाया गया।
- यह घाटी को बाढ़ से बचाता है।
- बांध 95 मीटर ऊंचा है।
- क्षेत्र के लगभग 300,000 लोगों को पीने का पानी जलाशय से मिलता है।
- अनुमति पत्र वाले लोग मछली पकड़ सकते हैं।
प्रोग्राम हर रात दो बजे सभी फाइलों का बैकअप बनाता है। बैकअप एन्क्रिप्ट किए जाते हैं और 30 दिन तक रखे जाते हैं। हटाई गई फाइलें इस समय के भीतर प्रशासक द्वारा वापस लाई जा सकती हैं। अगर डिस्क लगभग भर जाए, तो प्रोग्राम ईमेल से चेतावनी भेजता है। मुफ्त संस्करण 50 गीगाबाइट भंडारण तक सीमित है।
- हर रात दो बजे प्रोग्राम सभी फाइलों का बैकअप लेता है।
- बैकअप 30 दिन तक एन्क्रिप्ट करके रखे जाते हैं।
- प्रशासक हटाई गई फाइलें वापस ला सकता है।
- डिस्क लगभग भर जाने पर आपको ईमेल से चेतावनी मिलती है।
- मुफ्त संस्करण का भंडारण 50 गीगाबाइट तक सीमित है।
कर्मचारियों को साल में 28 दिन की छुट्टी का अधिकार है। आवेदन कम से कम तीन हफ्ते पहले प्रबंधक को देने चाहिए। बची हुई छुट्टियां अगले साल के 31 मार्च तक ली जा सकती हैं। जो छुट्टी के दौरान बीमार पड़ता है, उसे डॉक्टर का प्रमाण पत्र दिखाना होगा। परीक्षण अवधि के बाद हफ्ते में दो दिन घर से काम करना संभव है।
- हर कर्मचारी को साल में 28 दिन की छुट्टी का अधिकार है।
- छुट्टी के आवेदन तीन हफ्ते पहले प्रबंधक को देने होते हैं।
- बची हुई छुट्टियां 31 मार्च तक ली जा सकती हैं।
- छुट्टी के दौरान बीमार पड़ने वाले कर्मचारी को डॉक्टर का प्रमाण पत्र दिखाना होगा।
- परीक्षण अवधि के बाद कर्मचारी हफ्ते में दो दिन घर से काम कर सकते हैं।
"""


def _paired(text: str) -> tuple[tuple[str, str], ...]:
    """Return (text, true sentence about it) pairs."""
    pairs: list[tuple[str, str]] = []
    context = ""
    for line in text.splitlines():
        if line.startswith("- "):
            pairs.append((context, line[2:]))
        else:
            context = line
    return tuple(pairs)


PARALLEL: Final = {
    code: _paired(text)
    for code, text in {
        "en": _ENGLISH, "de": _GERMAN, "fr": _FRENCH, "es": _SPANISH, "pt": _PORTUGUESE, "it": _ITALIAN, "nl": _DUTCH,
        "ru": _RUSSIAN, "ar": _ARABIC, "ja": _JAPANESE, "zh": _CHINESE, "hi": _HINDI,
    }.items()
}  # fmt: skip
"""By language code: thirty pairs of a text and a true sentence about it."""
